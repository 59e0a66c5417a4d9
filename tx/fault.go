package tx

import (
	"cmp"
	"strings"

	"github.com/steledb/stele/datom"
)

// phase is a step of processing. The first phase that finds a fault reports it; phases after it do not matter.
type phase uint8

const (
	phaseForm phase = iota // limits and form
	phaseFunctions
	phaseMaps // map forms to list forms
	phaseAttrs
	phaseEntities
	phaseUpsert
	phaseCAS
	phaseConflicts
	phaseUnique
	phaseSchema
	phaseAttrPreds
	phaseEnsure
	phaseInstants
	phases
)

// faults keeps the least fault of each phase, so that what is reported depends neither on the order of the forms nor on
// that in which they are looked at.
type faults struct {
	least *[phases]*fault // nil: none
}

// fault is an error with what orders it among those of its phase.
type fault struct {
	Error
	value datom.Value // what Value shows, where it is a value
}

func (f *faults) add(ph phase, x *fault) {
	if f.least == nil {
		f.least = new([phases]*fault)
	}
	if old := f.least[ph]; old == nil || x.compare(old) < 0 {
		f.least[ph] = x
	}
}

// upTo is the fault to report once the phases up to and including ph are done, or nil. It is an error value only if there is one.
func (f *faults) upTo(ph phase) error {
	if f.least == nil {
		return nil
	}
	for _, x := range f.least[:ph+1] {
		if x != nil {
			return &x.Error
		}
	}
	return nil
}

func (f *faults) any() bool { return f.least != nil }

// compare orders faults by kind, attribute, value and entity; then by text, and by where they stood.
func (x *fault) compare(y *fault) int {
	return cmp.Or(
		cmp.Compare(x.Kind, y.Kind),
		strings.Compare(x.Attr, y.Attr),
		datom.Compare(x.value, y.value),
		strings.Compare(x.Value, y.Value),
		compareNames(x.Entity, y.Entity),
		strings.Compare(x.Msg, y.Msg),
		cmp.Compare(x.Pos.Form, y.Pos.Form),
		cmp.Compare(x.Pos.Line, y.Pos.Line),
		cmp.Compare(x.Pos.Column, y.Pos.Column),
	)
}

// compareNames orders entities as they are written: ids by number, before names.
func compareNames(a, b string) int {
	an, bn := isNumber(a), isNumber(b)
	switch {
	case an && bn:
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case an:
		return -1
	case bn:
		return 1
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
