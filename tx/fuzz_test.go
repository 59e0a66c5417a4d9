package tx

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzTransact feeds whatever reads as transactions to a database, one after the other. Every one is accepted or refused by a *Error;
// nothing panics, and every delta is exact.
func FuzzTransact(f *testing.F) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range strings.Split(string(b), "===")[1:] {
			var schema, tx string
			for _, l := range strings.Split(section, "\n")[1:] {
				switch {
				case !strings.HasPrefix(l, ">"):
					tx += l + "\n"
				case tx == "" || strings.HasPrefix(tx, "limits"):
					tx = ""
				case schema == "":
					schema, tx = tx, ""
				default:
					f.Add(schema, tx)
					tx = ""
				}
			}
		}
	}
	lim := Limits{ValueBytes: 1 << 10, Datoms: 1 << 10, Depth: 16, Bytes: 1 << 14}
	f.Fuzz(func(t *testing.T, schema, text string) {
		w := newScriptWorld()
		w.lim = lim
		for in, err := range ReadEDN(strings.NewReader(schema+"\n"+text), ReadLimits{}) {
			if err != nil {
				return
			}
			p, err := w.try(in.Data)
			var e *Error
			if err != nil {
				if !errors.As(err, &e) || e.Kind.String() == "" || e.Msg == "" {
					t.Fatalf("%T %v", err, err)
				}
				continue
			}
			if p.Original != 0 {
				continue
			}
			if p.Tx.T != w.st.BasisT()+1 || p.Tx.Instant < w.st.Instant() {
				t.Fatalf("%+v", p.Tx)
			}
			for _, d := range p.Tx.Datoms {
				if stored := w.st.Has(d.E, d.A, d.V); stored == d.Added {
					t.Fatalf("the delta is not exact: %s", d)
				}
				if w.st.Schema().Attr(d.A) == nil {
					t.Fatalf("the delta has no attribute %s", d)
				}
			}
			w.st.Apply(&p.Tx)
		}
	})
}
