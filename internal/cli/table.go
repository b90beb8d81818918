package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Style is how a cell looks on a terminal. The colours are those that every terminal
// has, in the shades that its user has chosen.
type Style int

// The styles.
const (
	Plain  = Style(0)
	Bold   = Style(text.Bold)
	Faint  = Style(text.Faint)
	Red    = Style(text.FgRed)
	Green  = Style(text.FgGreen)
	Yellow = Style(text.FgYellow)
	Cyan   = Style(text.FgCyan)
)

// Cell is a text in a table.
type Cell struct {
	Text  string
	Style Style
}

// Column is a column of a table.
type Column struct {
	Title string
	// Spare, if not 0, lets a terminal that is too narrow do without the column; that
	// with the largest goes first.
	Spare int
	// Flow is what a terminal that is too narrow does to long texts.
	Flow Flow
}

// Flow is what becomes of a text that is longer than its column can be.
type Flow int

// The flows.
const (
	Whole Flow = iota // it is shown all the same; the terminal breaks the line
	Cut               // its end is cut off
	Wrap              // it goes on in the next line, in its column
)

// leastFlow is how wide a column stays that is cut or wrapped.
const leastFlow = 16

const gap = 2 // blanks between columns

// Columns makes columns of titles.
func Columns(titles ...string) []Column {
	all := make([]Column, len(titles))
	for i, t := range titles {
		all[i].Title = t
	}
	return all
}

// Table has rows in aligned columns. In a pipe it is plain text with all its columns,
// one line for each row, whatever is in the cells (see [Visible]); on a terminal it has
// colours, and is fitted into the width.
type Table struct {
	screen Screen
	cols   []Column
	rows   [][]Cell
}

// Table begins a table for Stdout.
func (o *Output) Table(cols ...Column) *Table { return &Table{screen: o.Screen(), cols: cols} }

// Row adds a row; cells that are missing at its end are empty.
func (t *Table) Row(cells ...Cell) {
	row := make([]Cell, len(t.cols))
	for i, c := range cells {
		row[i] = Cell{Visible(c.Text), c.Style}
	}
	t.rows = append(t.rows, row)
}

// Write writes the table. There is a header if a column has a title.
func (t *Table) Write(w io.Writer) error {
	shown, room := t.fit()
	if len(t.rows) == 0 && !t.titled() {
		return nil
	}
	tab := table.NewWriter()
	tab.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: strings.Repeat(" ", gap)}})
	tab.SuppressTrailingSpaces()
	var configs []table.ColumnConfig
	for n, i := range shown {
		if c := t.cols[i]; c.Flow != Whole && room > 0 {
			how := text.WrapSoft
			if c.Flow == Cut {
				how = func(s string, n int) string { return text.Snip(s, n, "…") }
			}
			configs = append(configs, table.ColumnConfig{Number: n + 1, WidthMax: room, WidthMaxEnforcer: how})
		}
	}
	tab.SetColumnConfigs(configs)
	line := func(cell func(i int) Cell) (row table.Row) {
		for _, i := range shown {
			c := cell(i)
			if t.screen.Colour && c.Style != Plain && c.Text != "" {
				c.Text = text.Escape(c.Text, text.Color(c.Style).EscapeSeq())
			}
			row = append(row, c.Text)
		}
		return row
	}
	if t.titled() {
		tab.AppendHeader(line(func(i int) Cell { return Cell{t.cols[i].Title, Bold} }))
	}
	for _, row := range t.rows {
		tab.AppendRow(line(func(i int) Cell { return row[i] }))
	}
	_, err := io.WriteString(w, tab.Render()+"\n")
	return err
}

func (t *Table) titled() bool {
	return slices.ContainsFunc(t.cols, func(c Column) bool { return c.Title != "" })
}

// fit chooses the columns for the screen, and how wide those that flow can be; 0: as
// wide as they need to be.
func (t *Table) fit() (shown []int, room int) {
	need := make([]int, len(t.cols))  // of each column
	least := make([]int, len(t.cols)) // where it flows
	for i, c := range t.cols {
		need[i] = text.StringWidthWithoutEscSequences(c.Title)
		for _, row := range t.rows {
			need[i] = max(need[i], text.StringWidthWithoutEscSequences(row[i].Text))
		}
		least[i] = need[i]
		if c.Flow != Whole {
			least[i] = min(need[i], leastFlow)
		}
		shown = append(shown, i)
	}
	if t.screen.Width == 0 {
		return shown, 0
	}
	sum := func(widths []int) (n int) {
		for _, i := range shown {
			n += widths[i] + gap
		}
		return n - gap
	}
	for sum(least) > t.screen.Width {
		spare := slices.MaxFunc(shown, func(a, b int) int { return t.cols[a].Spare - t.cols[b].Spare })
		if t.cols[spare].Spare == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == spare })
	}
	if sum(need) <= t.screen.Width {
		return shown, 0
	}
	room = t.screen.Width - sum(need)
	for _, i := range shown {
		if t.cols[i].Flow != Whole { // there is one at most
			room += need[i]
		}
	}
	return shown, max(room, leastFlow)
}
