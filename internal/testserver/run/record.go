package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// required are the backends that must be tested where nothing may be left out.
var required = []string{"mem", "fs", "pg", "s3 (aws)", "s3 (minio)"}

// tested is a backend that the conformance suite ran against to its end.
type tested struct {
	backend, server string
	cases           int
}

type record []tested

// readRecord reads what log/logtest wrote: a line for each run, of name, server and number of cases. Of several runs of one backend against one
// server it keeps the one with the most cases.
func readRecord(r io.Reader) (record, error) {
	var out record
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("the record of backends holds a line that is none: %q", lines.Text())
		}
		cases, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, fmt.Errorf("the record of backends holds a line that is none: %q", lines.Text())
		}
		t := tested{strings.TrimSpace(f[0]), f[1], cases}
		if i := slices.IndexFunc(out, func(o tested) bool { return o.backend == t.backend && o.server == t.server }); i < 0 {
			out = append(out, t)
		} else {
			out[i].cases = max(out[i].cases, t.cases)
		}
	}
	// In the order in which they are required, others behind them.
	slices.SortStableFunc(out, func(a, b tested) int {
		if d := rank(a.backend) - rank(b.backend); d != 0 {
			return d
		}
		return strings.Compare(a.backend, b.backend)
	})
	return out, lines.Err()
}

func rank(backend string) int {
	if i := slices.Index(required, backend); i >= 0 {
		return i
	}
	return len(required)
}

// absent are the required backends that were not tested.
func (r record) absent() (names []string) {
	for _, name := range required {
		if !slices.ContainsFunc(r, func(t tested) bool { return t.backend == name }) {
			names = append(names, name)
		}
	}
	return names
}

// print writes a line for each backend that was tested, and one for the required ones that were not.
func (r record) print(w io.Writer) {
	for _, t := range r {
		fmt.Fprintf(w, "backend %-10s  %3d cases  %s\n", t.backend, t.cases, t.server)
	}
	if names := r.absent(); len(names) > 0 {
		fmt.Fprintf(w, "backends not tested: %s\n", strings.Join(names, ", "))
	}
}

// complete returns an error if a required backend is absent.
func (r record) complete() error {
	if names := r.absent(); len(names) > 0 {
		return fmt.Errorf("under CI=true every backend must be tested; these did not run, or did not pass: %s", strings.Join(names, ", "))
	}
	return nil
}
