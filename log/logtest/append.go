package logtest

import (
	"errors"

	"github.com/steledb/stele/log"
)

var cases = []testCase{
	{"Append_CreateOnly", appendCreateOnly},
}

func appendCreateOnly(s *suite) {
	o := s.own(s.handle(), log.Pos{}, 0)
	a := o.batch(2)
	o.append(a)
	o.append(a) // idempotent
	err := o.Append(s.ctx, o.root.Instance, o.other(a))
	if !errors.Is(err, log.ErrConflict) || log.OutcomeOf(err) != log.Rejected {
		s.Fatalf("another object at the same key: %v, outcome %s", err, log.OutcomeOf(err))
	}
	got, err := o.Get(s.ctx, o.root.Instance, a.Key())
	s.must(err, "Get")
	if got.Hash() != a.Hash() {
		s.Fatal("the first object was changed")
	}
}
