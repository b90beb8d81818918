package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report is what the program prints. Its JSON form is a contract.
type report struct {
	Database string `json:"database"`
	Rows     []row  `json:"rows"`
}

// row is the outcome of one strategy.
type row struct {
	Strategy   string  `json:"strategy"`
	Claimed    int64   `json:"claimed"`
	Left       int64   `json:"left_count"`
	Oversold   int64   `json:"oversold"`
	Duplicates int64   `json:"duplicates"`
	Ops        float64 `json:"ops_per_s"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
}

// broken says how a strategy that protects has failed.
func (r row) broken(gifts int) error {
	switch {
	case r.Oversold > 0 || r.Left < 0:
		return fmt.Errorf("%s has oversold: %d claimed of %d, left_count %d", r.Strategy, r.Claimed, gifts, r.Left)
	case r.Duplicates > 0:
		return fmt.Errorf("%s has served %d users twice", r.Strategy, r.Duplicates)
	case r.Claimed+r.Left != int64(gifts):
		return fmt.Errorf("%s has lost gifts: %d claimed and %d left of %d", r.Strategy, r.Claimed, r.Left, gifts)
	}
	return nil
}

// times fills in the figures of speed.
func (r *row) times(took attempts, elapsed time.Duration) {
	r.Ops = float64(took.Tries) / elapsed.Seconds()
	served := took.Served
	if len(served) == 0 {
		return
	}
	slices.Sort(served)
	at := func(p int) float64 { return float64(served[(len(served)-1)*p/100]) / 1000 }
	r.P50, r.P99 = at(50), at(99)
}

func (r report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "strategy\tclaimed\tleft_count\toversold\tduplicates\tops/s\tp50\tp99\t")
	for _, x := range r.Rows {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.0f\t%.2f ms\t%.2f ms\t\n", x.Strategy, x.Claimed, x.Left, x.Oversold, x.Duplicates, x.Ops, x.P50, x.P99)
	}
	return t.Flush()
}
