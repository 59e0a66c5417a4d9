package log_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/steledb/stele/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func genKey() *rapid.Generator[log.Key] {
	return rapid.Custom(func(t *rapid.T) log.Key {
		return log.Key{Epoch: rapid.Uint64().Draw(t, "epoch"), FirstT: rapid.Uint64().Draw(t, "t")}
	})
}

func TestKeyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genKey().Draw(t, "a"), genKey().Draw(t, "b")
		got, err := log.ParseKey(a.String())
		if err != nil || got != a {
			t.Fatalf("%s parses as %s: %v", a, got, err)
		}
		if strings.Compare(a.String(), b.String()) != a.Compare(b) {
			t.Fatalf("%s and %s sort otherwise than their names", a, b)
		}
		if log.MaxKey.Compare(a) < 0 || a.Compare(log.Key{}) < 0 {
			t.Fatalf("%s lies outside", a)
		}
	})
	good := log.Key{Epoch: 0xabc, FirstT: 1}.String()
	if good != "0000000000000abc-0000000000000001" {
		t.Errorf("a key is named %s", good)
	}
	for _, s := range []string{"", "1-1", good[1:], good + "0", strings.ToUpper(good), strings.Replace(good, "-", "_", 1), " " + good[1:], "+" + good[1:], "0x" + good[2:]} {
		if k, err := log.ParseKey(s); err == nil {
			t.Errorf("%q parses as %s", s, k)
		}
	}
}

func TestIDNames(t *testing.T) {
	id := log.NewID()
	got, err := log.ParseID(id.String())
	if err != nil || got != id || len(id.String()) != 32 {
		t.Fatalf("%s parses as %s: %v", id, got, err)
	}
	if log.NewID() == id || id.IsZero() {
		t.Fatal("an id is not random")
	}
	for _, s := range []string{"", id.String()[1:], id.String() + "0", strings.Repeat("A", 32), strings.Repeat("x", 32)} {
		if got, err := log.ParseID(s); err == nil {
			t.Errorf("%q parses as %s", s, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		err  error
		want log.Outcome
	}{
		{boom, log.Unknown},
		{context.DeadlineExceeded, log.Unknown},
		{log.ErrConflict, log.Rejected},
		{fmt.Errorf("object 7: %w", log.ErrConflict), log.Rejected},
		{log.ErrNotOwner, log.Rejected},
		{log.WithOutcome(log.NotWritten, boom), log.NotWritten},
		{fmt.Errorf("append: %w", log.WithOutcome(log.NotWritten, boom)), log.NotWritten},
		{log.WithOutcome(log.Unknown, log.ErrConflict), log.Unknown},
	} {
		if got := log.OutcomeOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
	if err := log.WithOutcome(log.NotWritten, boom); !errors.Is(err, boom) || !strings.Contains(err.Error(), "not written") {
		t.Error(err)
	}
}

func TestCorruptError(t *testing.T) {
	boom := errors.New("boom")
	err := fmt.Errorf("open: %w", &log.CorruptError{Location: "file 7", Key: log.StartKey(3), Reason: "it is bad", Err: boom})
	if !errors.Is(err, log.ErrCorrupt) || !errors.Is(err, boom) {
		t.Error(err)
	}
	for _, part := range []string{"file 7", log.StartKey(3).String(), "it is bad", "boom"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
