package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// matrix collects how each cell ended: who died where, whose reply was lost, which link was cut.
var matrix results

type results struct {
	mu     sync.Mutex
	tables []*table
}

// table is one part of the matrix. A cell that was expected and did not run fails the full suite.
type table struct {
	all     *results
	title   string
	columns []string
	steps   []string // in the order of the protocol
	cells   map[[2]string]string
	telling []string // the cells that run by default, as "step/column"
}

const notRun = "-"

// everyCell, as the only telling one, has a table run as a whole by default.
var everyCell = []string{"*"}

// table adds a part with its columns.
func (r *results) table(title string, columns []string, telling ...string) *table {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &table{all: r, title: title, columns: columns, telling: telling, cells: map[[2]string]string{}}
	r.tables = append(r.tables, t)
	return t
}

// run declares one cell and runs it, beside others, when the suite is the full one, the cell is a telling one, or the
// command line names it. The cell returns how it ended.
func (tb *table) run(t *testing.T, step, column string, cell func(t *testing.T) string) {
	t.Helper()
	name := step + "/" + column
	tb.set(step, column, notRun)
	if !all && !askedForCells() && !slices.Contains(tb.telling, name) && !slices.Equal(tb.telling, everyCell) {
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		tb.set(step, column, "FAILED")
		began := time.Now()
		ended := cell(t)
		if !t.Failed() {
			tb.set(step, column, ended)
		}
		t.Logf("%s: %s, after %s", name, ended, time.Since(began).Round(100*time.Millisecond))
	})
}

func (tb *table) set(step, column, result string) {
	tb.all.mu.Lock()
	defer tb.all.mu.Unlock()
	if !slices.Contains(tb.steps, step) {
		tb.steps = append(tb.steps, step)
	}
	if !slices.Contains(tb.columns, column) {
		tb.columns = append(tb.columns, column)
	}
	tb.cells[[2]string{step, column}] = result
}

// notRun lists the cells that were declared and did not run.
func (r *results) notRun() (cells []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tb := range r.tables {
		for _, step := range tb.steps {
			for _, column := range tb.columns {
				if tb.cells[[2]string{step, column}] == notRun {
					cells = append(cells, tb.title+": "+step+"/"+column)
				}
			}
		}
	}
	return cells
}

// text is the matrix as people read it: only parts of which something ran.
func (r *results) text(took time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	ran := 0
	for _, tb := range r.tables {
		text, n := tb.text()
		b.WriteString(text)
		ran += n
	}
	if ran == 0 {
		return ""
	}
	fmt.Fprintf(&b, "%d cells in %s\n", ran, took.Round(time.Second))
	return b.String()
}

func (tb *table) text() (text string, ran int) {
	first, widths := 0, make([]int, len(tb.columns))
	for _, step := range tb.steps {
		first = max(first, len(step))
		for i, column := range tb.columns {
			cell := tb.cells[[2]string{step, column}]
			widths[i] = max(widths[i], len(column), len(cell))
			if cell != "" && cell != notRun {
				ran++
			}
		}
	}
	if ran == 0 {
		return "", 0
	}
	var b strings.Builder
	line := func(head string, cell func(column string) string) {
		fmt.Fprintf(&b, "%-*s", first, head)
		for i, column := range tb.columns {
			fmt.Fprintf(&b, "  %-*s", widths[i], cell(column))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%s\n", tb.title)
	line("", func(column string) string { return column })
	for _, step := range tb.steps {
		line(step, func(column string) string { return tb.cells[[2]string{step, column}] })
	}
	return b.String(), ran
}
