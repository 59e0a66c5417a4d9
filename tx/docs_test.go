package tx_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/tx"
)

const (
	docsPage     = "../docs/transactions.md"
	docsExamples = "docs_example_test.go"
	docsSetting  = "## The database of the examples" // the chapter that every later one begins with
)

// TestDocs runs docs/transactions.md. Each block of edn or json is transacted, form by form of its text, and what comes of it must be the block of result behind
// it; a block "edn setup" has none and must commit. Every chapter begins with the database that the chapter docsSetting made. A block
// of go must stand in docsExamples, letter by letter, where it is compiled and run. With -rewrite, results are written into the page.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile(docsExamples)
	if err != nil {
		t.Fatal(err)
	}
	r := docsRun{t: t, examples: string(examples), w: newDocsWorld(), refused: map[tx.Kind]bool{}}
	got := r.page(string(b))
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(docsPage, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, have := strings.Split(string(b), "\n"), strings.Split(got, "\n")
	for i := range min(len(want), len(have)) {
		if want[i] != have[i] {
			t.Fatalf("%s:%d\nthe page says: %s\nwhat came is:  %s", docsPage, i+1, want[i], have[i])
		}
	}
	if len(want) != len(have) {
		t.Fatalf("the page has %d lines, but %d came", len(want), len(have))
	}
	for k := tx.NotAnEntity; k <= tx.Malformed; k++ {
		if !strings.Contains(got, "| `"+k.String()+"` |") {
			t.Errorf("the table of errors has no %s", k)
		}
		if !r.refused[k] && !strings.Contains(got, "// "+k.String()+": ") {
			t.Errorf("no example is refused with %s", k)
		}
	}
	if r.results < 50 || r.goBlocks == 0 {
		t.Errorf("only %d results and %d blocks of Go", r.results, r.goBlocks)
	}
}

type docsRun struct {
	t        *testing.T
	examples string
	w, base  docsWorld
	refused  map[tx.Kind]bool
	results  int
	goBlocks int
}

// page is the page with the results that came.
func (r *docsRun) page(text string) string {
	var out, block strings.Builder
	var tag, pending string // of the open block; the result that must follow
	inSetting := false
	for i, line := range strings.SplitAfter(text, "\n") {
		trimmed := strings.TrimSuffix(line, "\n")
		fence := strings.HasPrefix(trimmed, "```")
		switch {
		case fence && tag == "":
			if tag = trimmed[3:]; (tag == "result") != (pending != "") {
				r.t.Fatalf("line %d: a block of edn or json is followed by one of result, and only such a block is", i+1)
			}
			block.Reset()
		case fence:
			if pending != "" {
				out.WriteString(pending)
			}
			pending = r.block(i+1, tag, block.String())
			tag = ""
		case tag != "":
			block.WriteString(line)
			if tag == "result" {
				continue // what came is written in its place
			}
		case strings.HasPrefix(trimmed, "## "):
			if inSetting {
				r.base = r.w.clone()
			}
			if inSetting = trimmed == docsSetting; !inSetting && r.base.names != nil {
				r.w = r.base.clone()
			}
		}
		out.WriteString(line)
	}
	if tag != "" || pending != "" {
		r.t.Fatal("the last block is not closed, or its result is missing")
	}
	return out.String()
}

// block runs a block and returns the result that must follow it.
func (r *docsRun) block(line int, tag, text string) string {
	switch tag {
	case "edn setup":
		for _, res := range r.transact("edn", text) {
			if strings.HasPrefix(res, "refused") {
				r.t.Fatalf("the block before line %d is %s", line, res)
			}
		}
	case "edn", "json":
		r.results++
		return strings.Join(r.transact(tag, text), "\n")
	case "go":
		r.goBlocks++
		var indented strings.Builder
		for l := range strings.Lines(text) {
			if l != "\n" {
				indented.WriteByte('\t')
			}
			indented.WriteString(l)
		}
		if !strings.Contains(r.examples, "\n"+text) && !strings.Contains(r.examples, "\n"+indented.String()) {
			r.t.Errorf("the block of Go before line %d is not in %s:\n%s", line, docsExamples, text)
		}
	case "result":
	default:
		r.t.Errorf("line %d: a block of %q is not run by any test", line, tag)
	}
	return ""
}

// transact is what becomes of each transaction in the text.
func (r *docsRun) transact(tag, text string) (results []string) {
	read := tx.ReadEDN
	if tag == "json" {
		read = tx.ReadJSON
	}
	for in, err := range read(strings.NewReader(text), tx.ReadLimits{}) {
		var rep *tx.Report
		if err == nil {
			rep, err = tx.WithEnv(r.w.db, in.Data, tx.Limits{}, docsEnv())
		}
		var e *tx.Error
		switch {
		case errors.As(err, &e):
			r.refused[e.Kind] = true
			results = append(results, "refused, "+e.At()+"\n")
		case err != nil:
			r.t.Fatal(err)
		case rep.Repeated:
			results = append(results, fmt.Sprintf("committed before, as %d\n", rep.Tx))
		default:
			results = append(results, r.w.commit(rep))
		}
	}
	return results
}

// docsWorld is a database and what its entities are called in results.
type docsWorld struct {
	db    db.DB
	names map[datom.ID]string
}

func newDocsWorld() docsWorld {
	return docsWorld{db: emptyDB(), names: map[datom.ID]string{}}
}

// emptyDB is the value of a database that was just created.
func emptyDB() db.DB {
	st := db.NewStage(db.Empty())
	st.Apply(db.Bootstrap())
	return st.Snapshot()
}

func (w *docsWorld) clone() docsWorld { return docsWorld{w.db, maps.Clone(w.names)} }

// commit is a transaction's delta, but for an instant that the clock gave.
func (w *docsWorld) commit(rep *tx.Report) string {
	w.db = rep.DBAfter
	for name, id := range rep.Tempids.All() {
		if _, ok := w.names[id]; !ok {
			w.names[id] = name
		}
	}
	w.names[rep.Tx] = "datomic.tx"
	var lines []string
	for _, x := range rep.TxData {
		if x.A == db.AttrTxInstant && x.V.InstantMilli() == docsNow {
			continue
		}
		sign := "+"
		if !x.Added {
			sign = "-"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s\n", sign, w.entity(x.E), w.entity(x.A), w.value(x.V)))
	}
	delete(w.names, rep.Tx)
	slices.Sort(lines)
	for _, n := range rep.Notices {
		lines = append(lines, "notice: "+n+"\n")
	}
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "")
}

func (w *docsWorld) entity(id datom.ID) string {
	if kw, ok := w.db.Ident(id); ok {
		return kw.String()
	}
	if s, ok := w.names[id]; ok {
		return s
	}
	return id.String()
}

func (w *docsWorld) value(v datom.Value) string {
	switch v.Kind() {
	case datom.KindRef:
		return w.entity(v.Ref())
	case datom.KindTuple:
		var s []string
		for _, e := range v.Tuple() {
			s = append(s, w.value(e))
		}
		return "[" + strings.Join(s, " ") + "]"
	}
	return v.String()
}
