package tx

import (
	"errors"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/edn"
)

// Input is one transaction as [ReadEDN] or [ReadJSON] read it. Its forms, and the maps in them, know where they stood.
type Input struct {
	Data Data
	N    int // from 1, among the input's transactions
	Pos  Pos // where the transaction began
}

// ReadLimits bound one transaction of an input, while it is read. A zero field takes the value of [DefaultReadLimits].
type ReadLimits struct {
	Depth    int // how deep values may stand within one another
	Bytes    int // length of a transaction's text
	Elements int // how many values it may consist of
}

// DefaultReadLimits let through every transaction that [DefaultLimits] do, unless its text is much longer than its values.
var DefaultReadLimits = ReadLimits{Depth: 256, Bytes: 64 << 20, Elements: 8 << 20}

func (l ReadLimits) orDefault() ReadLimits {
	d := DefaultReadLimits
	if l.Depth > 0 {
		d.Depth = l.Depth
	}
	if l.Bytes > 0 {
		d.Bytes = l.Bytes
	}
	if l.Elements > 0 {
		d.Elements = l.Elements
	}
	return d
}

// readError is an error of a reader as a refusal, if it is about the text; an error of the input's io.Reader stays as it is.
func readError(err error) error {
	var e *edn.Error
	if !errors.As(err, &e) {
		return err
	}
	k := Malformed
	if errors.Is(err, edn.ErrLimit) {
		k = LimitExceeded
	}
	return &Error{Kind: k, Pos: at(e.Pos), Msg: e.Msg, Err: err}
}

func at(p edn.Pos) Pos { return Pos{Line: p.Line, Column: p.Column} }

// keywords keeps the interface values of valid keywords, by their text, which come again and again.
type keywords map[string]any

// maxKeywords bounds it.
const maxKeywords = 4096

func (ks keywords) of(s string) any {
	if k, ok := ks[s]; ok {
		return k
	}
	if len(ks) >= maxKeywords {
		clear(ks)
	}
	var k any = datom.Keyword(s)
	ks[s] = k
	return k
}
