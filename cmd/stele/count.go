package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

type countCmd struct {
	Store  string `required:"" placeholder:"URL" help:"The database: ${stores}."`
	By     string `enum:"none,attribute" default:"none" help:"none: one number; attribute: a number for each attribute that has facts (${enum})."`
	Output string `short:"o" enum:"edn,json" default:"edn" help:"The output's notation (${enum})."`
}

func (countCmd) Help() string {
	return `Counts what holds now, about entities of your own: facts of the built-in attributes (schema, idents, instants) are left out. The
database is opened read-only, beside whoever owns it.`
}

func (c *countCmd) Run(ctx context.Context, s *streams) (err error) {
	r, err := config.OpenReadOnly(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(ctx)) }()
	counts, total, err := countFacts(ctx, r.DB())
	if err != nil {
		return err
	}
	w := bufio.NewWriter(s.out)
	if c.By == "none" {
		fmt.Fprintln(w, total)
		return w.Flush()
	}
	if c.Output == "json" {
		err = writeJSON(w, counts)
	} else {
		writeEDN(w, counts)
	}
	return errors.Join(err, w.Flush())
}

type attrCount struct {
	attr  datom.Keyword
	facts int
}

// countFacts counts the current facts of each attribute that is not built in and has any, in the order of their idents.
func countFacts(ctx context.Context, d db.DB) (counts []attrCount, total int, err error) {
	for a := range d.Schema().Attributes() {
		if db.IsBuiltin(a.ID) {
			continue
		}
		n := 0
		for range d.Datoms(db.AEVT, a.ID) {
			if n++; n%(1<<16) == 0 && ctx.Err() != nil {
				return nil, 0, ctx.Err()
			}
		}
		if n > 0 {
			counts = append(counts, attrCount{a.Ident, n})
			total += n
		}
	}
	slices.SortFunc(counts, func(a, b attrCount) int {
		if c := strings.Compare(a.attr.Namespace(), b.attr.Namespace()); c != 0 {
			return c
		}
		return strings.Compare(a.attr.Name(), b.attr.Name())
	})
	return counts, total, nil
}

func writeEDN(w io.Writer, counts []attrCount) {
	sep := "{"
	for _, c := range counts {
		fmt.Fprintf(w, "%s%s %d", sep, c.attr, c.facts)
		sep = "\n "
	}
	if len(counts) == 0 {
		io.WriteString(w, sep)
	}
	io.WriteString(w, "}\n")
}

func writeJSON(w io.Writer, counts []attrCount) error {
	sep := "{"
	for _, c := range counts {
		name, err := json.Marshal(string(c.attr))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n  %s: %d", sep, name, c.facts)
		sep = ","
	}
	if len(counts) == 0 {
		io.WriteString(w, sep)
	}
	_, err := io.WriteString(w, "\n}\n")
	return err
}
