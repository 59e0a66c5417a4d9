package tx

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

var rewrite = flag.Bool("rewrite", false, "write what came into the transcripts, in place of what was expected")

// TestTranscripts runs the files of testdata/transcripts. A line "=== name" begins with a fresh database; what follows, up to a line that
// begins with ">", is one transaction in EDN; the lines with ">" are what comes of it: its delta but for the instant, or
// why it was refused. Refused transactions are also run with their forms in other orders: the text must stay the same.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcribe(t, string(b))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, have := strings.Split(string(b), "\n"), strings.Split(got, "\n")
			for i := range min(len(want), len(have)) {
				if want[i] != have[i] {
					t.Fatalf("%s:%d\nexpected: %s\ngot:      %s", file, i+1, want[i], have[i])
				}
			}
			if len(want) != len(have) {
				t.Fatalf("%s has %d lines, but %d came", file, len(want), len(have))
			}
		})
	}
}

func transcribe(t *testing.T, text string) string {
	var out, input strings.Builder
	var w *scriptWorld
	for _, line := range strings.SplitAfter(text, "\n") {
		switch {
		case strings.HasPrefix(line, "==="):
			w = newScriptWorld()
			out.WriteString(line)
		case strings.HasPrefix(line, ">"):
			if input.Len() > 0 {
				if s := input.String(); strings.HasPrefix(s, "limits ") {
					out.WriteString(w.setLimits(t, s))
				} else {
					out.WriteString(w.run(t, s))
				}
				input.Reset()
			}
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, ";"):
			out.WriteString(line)
		default:
			input.WriteString(line)
			out.WriteString(line)
		}
	}
	return out.String()
}

type scriptWorld struct {
	world
	lim  Limits
	name map[datom.ID]string
}

func newScriptWorld() *scriptWorld {
	return &scriptWorld{world: *newWorld(), name: map[datom.ID]string{}}
}

func (w *scriptWorld) setLimits(t *testing.T, s string) string {
	w.lim = Limits{}
	for _, f := range strings.Fields(s)[1:] {
		var n int
		k, v, _ := strings.Cut(f, "=")
		if _, err := fmt.Sscan(v, &n); err != nil {
			t.Fatal(err)
		}
		*map[string]*int{"value": &w.lim.ValueBytes, "datoms": &w.lim.Datoms, "depth": &w.lim.Depth, "bytes": &w.lim.Bytes}[k] = n
	}
	return ">\n"
}

func (w *scriptWorld) env() *Env {
	return &Env{
		Now: testNow,
		Functions: map[datom.Keyword]Func{
			"fn/inc": func(_ context.Context, before db.DB, args []any) (Data, error) {
				e, err := before.Entity(args[0])
				if err != nil {
					return nil, err
				}
				v, _ := e.Get(args[1].(datom.Keyword))
				return Data{Add(args[0], args[1].(datom.Keyword), v.Long()+1)}, nil
			},
			"fn/twice": func(_ context.Context, _ db.DB, args []any) (Data, error) {
				return Data{Call("fn/inc", args...), Add(args[0], "p/tag", datom.Keyword("twice"))}, nil
			},
			"fn/fails":    func(context.Context, db.DB, []any) (Data, error) { return nil, errors.New("no luck today") },
			"fn/panics":   func(context.Context, db.DB, []any) (Data, error) { panic("lost my way") },
			"fn/for-ever": func(context.Context, db.DB, []any) (Data, error) { return Data{Call("fn/for-ever")}, nil },
			"fn/bad-form": func(context.Context, db.DB, []any) (Data, error) { return Data{List{Op: OpAdd}}, nil },
			"fn/nothing":  func(context.Context, db.DB, []any) (Data, error) { return nil, nil },
			"fn/unknown":  func(context.Context, db.DB, []any) (Data, error) { return Data{Call("fn/missing")}, nil },
		},
		AttrPreds: map[datom.Symbol]AttrPred{
			"pred/even?": func(_ context.Context, v datom.Value) error {
				if v.Long()%2 != 0 {
					return errors.New("it is odd")
				}
				return nil
			},
			"pred/panics": func(context.Context, datom.Value) error { panic("oh") },
		},
		EntityPreds: map[datom.Symbol]EntityPred{
			"pred/adult?": func(_ context.Context, after db.DB, id datom.ID) error {
				e, err := after.Entity(id)
				if err != nil {
					return err
				}
				if v, ok := e.Get(datom.Keyword("p/age")); !ok || v.Long() < 18 {
					return fmt.Errorf("it is %s", v)
				}
				return nil
			},
			"pred/panics": func(context.Context, db.DB, datom.ID) error { panic("oh") },
		},
	}
}

func (w *scriptWorld) try(d Data) (*Prepared, error) {
	r, err := Compile(w.st.Schema(), d, w.lim)
	if err != nil {
		return nil, err
	}
	return w.prep.Prepare(w.st, r, w.env())
}

func (w *scriptWorld) run(t *testing.T, text string) string {
	t.Helper()
	var d Data
	for in, err := range ReadEDN(strings.NewReader(text), ReadLimits{}) {
		if err != nil {
			return "> unreadable: " + err.Error() + "\n"
		}
		d = append(d, in.Data...)
	}
	p, err := w.try(d)
	for seed := range uint64(8) {
		d2 := slices.Clone(d)
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(d), func(i, j int) { d2[i], d2[j] = d2[j], d2[i] })
		if _, err2 := w.try(d2); fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("in another order\n%s\n%v\n%v", text, err, err2)
		}
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		return fmt.Sprintf("> %s\n", e.At())
	}
	if p.Original != 0 {
		return fmt.Sprintf("> as tx%d said\n", p.Original)
	}
	w.st.Apply(&p.Tx)
	w.name[datom.TxID(p.Tx.T)] = fmt.Sprintf("tx%d", p.Tx.T)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.Tempids().Map()))) {
		id, _ := p.Tempids().Get(name)
		if _, ok := w.name[id]; !ok {
			w.name[id] = name
		}
	}
	var lines []string
	for _, x := range p.Tx.Datoms {
		if x.A != db.AttrTxInstant {
			sign := "+"
			if !x.Added {
				sign = "-"
			}
			lines = append(lines, fmt.Sprintf("> %s %s %s %s\n", sign, w.show(x.E), w.show(x.A), w.showValue(x.V)))
		}
	}
	slices.Sort(lines)
	for _, n := range p.Notices {
		lines = append(lines, "> notice: "+n+"\n")
	}
	if len(lines) == 0 {
		return "> nothing\n"
	}
	return strings.Join(lines, "")
}

func (w *scriptWorld) show(id datom.ID) string {
	if kw, ok := w.st.Schema().Ident(id); ok {
		return kw.String()
	}
	if s, ok := w.name[id]; ok {
		return s
	}
	return id.String()
}

func (w *scriptWorld) showValue(v datom.Value) string {
	switch v.Kind() {
	case datom.KindRef:
		return w.show(v.Ref())
	case datom.KindTuple:
		var s []string
		for _, e := range v.Tuple() {
			s = append(s, w.showValue(e))
		}
		return "[" + strings.Join(s, " ") + "]"
	}
	return v.String()
}
