package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// report prints what was measured, as it comes; JSON at the end.
type report struct {
	stdout, stderr   io.Writer
	json             bool
	results          []result
	measured, missed int
}

// result is a figure in JSON.
type result struct {
	Figure   string  `json:"figure"`
	Database string  `json:"database"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	// Bound is a text, "at most 1.15"; Kept is true where there is none.
	Bound string `json:"bound"`
	Kept  bool   `json:"kept"`
	// Q1 and Q3 are the quartiles of the rounds.
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	Rounds int     `json:"rounds"`
}

// add prints one figure. It is judged as it is printed, rounded: nobody is to
// read 1.15 and be told that it is more than 1.15.
func (r *report) add(f figure, t target, m measurement) error {
	res := result{
		Figure: f.name, Database: t.kind.String(), Unit: f.unit, Bound: t.bound.String(), Rounds: len(m.values),
		Value: rounded(median(m.values)), Q1: rounded(quantile(m.values, 0.25)), Q3: rounded(quantile(m.values, 0.75)),
	}
	if math.IsNaN(res.Value) {
		return fmt.Errorf("the median of %v is no number", m.values)
	}
	res.Kept = t.bound.keeps(res.Value)
	r.measured++
	verdict := ""
	if !res.Kept {
		r.missed++
		verdict = " MISSED"
	}
	fmt.Fprintf(r.stderr, "%s %s: %s%s; quartiles of %d rounds %s and %s; %s\n", f.name, t.kind, res.Bound, verdict,
		res.Rounds, number(res.Q1), number(res.Q3), m.note)
	if r.json {
		r.results = append(r.results, res)
		return nil
	}
	_, err := fmt.Fprintf(r.stdout, "figure %s %s %s %s\n", f.name, t.kind, number(res.Value), f.unit)
	return err
}

// finish prints the JSON document, if that was asked for.
func (r *report) finish() error {
	if !r.json {
		return nil
	}
	enc := json.NewEncoder(r.stdout)
	enc.SetIndent("", "  ")
	if r.results == nil {
		r.results = []result{} // not null
	}
	return enc.Encode(map[string][]result{"figures": r.results})
}

// explain prints what the figures are, and what they are compared with.
func explain(w io.Writer, o options) error {
	var b strings.Builder
	for i, f := range o.figures {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s (%s): %s\n", f.name, f.unit, f.about)
		for _, t := range f.on {
			if !o.wants(t.kind) {
				continue
			}
			fmt.Fprintf(&b, "\n  %s: %s\n", t.kind, t.bound)
			if t.floor != "" {
				fmt.Fprintf(&b, "    floor:\n      %s\n", strings.ReplaceAll(t.floor, "\n", "\n      "))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
