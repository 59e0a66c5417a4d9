package log_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/steledb/stele/log"
)

func sampleRoot() *log.Root {
	return &log.Root{
		Version: 300, Format: 1, Lineage: filled(1), Instance: filled(2), Epoch: 9, Claim: filled(3),
		Owner: "host 7, process 12", Endpoint: "https://a.example:7171", LeaseCounter: 77, Lease: 10 * time.Second,
		Sealed: log.Sealed{Epoch: 8, FirstT: 100, LastT: 163, Hash: log.Hash{1, 2, 3}},
		Chunks: "4/aa", Snapshot: "4/bb", Collect: 4,
	}
}

func TestRootGolden(t *testing.T) {
	tomb := sampleRoot().Tombstone()
	for name, r := range map[string]*log.Root{
		"root-v1-full": sampleRoot(), "root-v1-tombstone": tomb,
		"root-v1-new": {Version: 1, Format: 1, Lineage: filled(1), Instance: filled(2)},
	} {
		b, err := log.EncodeRoot(r)
		if err != nil {
			t.Fatal(name, err)
		}
		golden(t, name, b)
		got, err := log.DecodeRoot(b)
		if err != nil {
			t.Fatal(name, err)
		}
		if *got != *r {
			t.Errorf("%s: decoded as %+v", name, got)
		}
	}
}

// TestRootHasAllFields fails when a field is added to Root and not to its encoding: sampleRoot sets every one.
func TestRootHasAllFields(t *testing.T) {
	r := sampleRoot()
	r.Deleted = true
	v := reflect.ValueOf(*r)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("sampleRoot does not set %s", v.Type().Field(i).Name)
		}
	}
	b, err := log.EncodeRoot(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := log.DecodeRoot(b)
	if err != nil {
		t.Fatal(err)
	}
	if *got != *r {
		t.Errorf("decoded as %+v", got)
	}
}

func TestRootRoundTrip(t *testing.T) {
	id := rapid.Custom(func(t *rapid.T) (id log.ID) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		id[0] |= 1
		return id
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 100, log.MaxRootText)
		r := &log.Root{
			Version: rapid.Uint64Min(1).Draw(t, "version"), Format: rapid.Uint32Min(1).Draw(t, "format"),
			Lineage: id.Draw(t, "lineage"), Instance: id.Draw(t, "instance"),
			Epoch: rapid.Uint64Range(0, 1<<63).Draw(t, "epoch"), Deleted: rapid.Bool().Draw(t, "deleted"),
			Owner: text.Draw(t, "owner"), Endpoint: text.Draw(t, "endpoint"),
			LeaseCounter: rapid.Uint64().Draw(t, "counter"), Lease: time.Duration(rapid.Int64Min(0).Draw(t, "lease")),
			Chunks: text.Draw(t, "chunks"), Snapshot: text.Draw(t, "snapshot"), Collect: rapid.Uint64().Draw(t, "collect"),
		}
		if r.Epoch > 0 {
			r.Claim = id.Draw(t, "claim")
			last := rapid.Uint64().Draw(t, "last t")
			r.Sealed = log.Sealed{Epoch: rapid.Uint64Range(1, r.Epoch).Draw(t, "sealed"), LastT: last,
				FirstT: rapid.Uint64Range(0, last).Draw(t, "sealed first t"), Hash: log.Hash{1}}
		}
		b, err := log.EncodeRoot(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > log.MaxRoot {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := log.DecodeRoot(b)
		if err != nil {
			t.Fatal(err)
		}
		if *got != *r {
			t.Fatalf("%+v became %+v", r, got)
		}
	})
}

func TestRootRefuses(t *testing.T) {
	b, err := log.EncodeRoot(sampleRoot())
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 0x10
		if _, err := log.DecodeRoot(c); !errors.Is(err, log.ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := log.DecodeRoot(b[:i]); !errors.Is(err, log.ErrCorrupt) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
	}
	// A field of a newer version, behind all others, under a right checksum.
	newer := seal(append(bytes.Clone(b[:len(b)-4]), 16, 1, 1, 0, 0, 0, 0))
	if _, err := log.DecodeRoot(newer); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("an unknown field: %v", err)
	}
	// Fields by hand: version, format, lineage, instance; then wrongly.
	const id = "10 01010101010101010101010101010101"
	const version, format, lineage, instance = "01 01 01", "02 01 01", "03" + id, "04" + id
	byHand := func(parts ...string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return seal(append(append([]byte("STLR\x01"), b...), 0, 0, 0, 0))
	}
	if _, err := log.DecodeRoot(byHand(version, format, lineage, instance)); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"fields out of order":  byHand(format, version, lineage, instance),
		"a field twice":        byHand(version, version, format, lineage, instance),
		"an empty field":       byHand(version, format, lineage, instance, "05 00"),
		"a zero":               byHand(version, format, lineage, instance, "05 01 00"),
		"a longer form":        byHand("01 02 8100", format, lineage, instance),
		"two numbers":          byHand("01 02 0101", format, lineage, instance),
		"a short id":           byHand(version, format, "03 01 01", instance),
		"deleted twice":        byHand(version, format, lineage, instance, "07 01 02"),
		"truncated":            byHand(version, format, lineage, "04 11 01"),
		"nothing sealed":       byHand(version, format, lineage, instance, "0c 23 000000"+strings.Repeat("00", 32)),
		"a lease of 300 years": byHand(version, format, lineage, instance, "0b 0a 80808080808080808001"),
	} {
		if r, err := log.DecodeRoot(b); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for name, change := range map[string]func(*log.Root){
		"version 0":        func(r *log.Root) { r.Version = 0 },
		"format 0":         func(r *log.Root) { r.Format = 0 },
		"no instance":      func(r *log.Root) { r.Instance = log.ID{} },
		"no claim":         func(r *log.Root) { r.Claim = log.ID{} },
		"a long owner":     func(r *log.Root) { r.Owner = strings.Repeat("x", log.MaxRootText+1) },
		"a negative lease": func(r *log.Root) { r.Lease = -1 },
		"sealed above":     func(r *log.Root) { r.Sealed.Epoch = 10 },
		"sealed, no hash":  func(r *log.Root) { r.Sealed.Hash = log.Hash{} },
	} {
		r := sampleRoot()
		change(r)
		if _, err := log.EncodeRoot(r); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestRootSteps(t *testing.T) {
	r := log.NewRoot()
	if r.Version != 1 || r.Epoch != 0 || r.Lineage.IsZero() || r.Instance.IsZero() || r.Lineage == r.Instance {
		t.Fatalf("a new root is %+v", r)
	}
	claim := log.NewID()
	a := r.Acquire(claim, "me")
	if a.Version != 2 || a.Epoch != 1 || a.Claim != claim || a.Owner != "me" || !a.Owned(r.Instance, 1, claim) || r.Epoch != 0 {
		t.Fatalf("acquired: %+v", a)
	}
	d := a.Tombstone()
	if !d.Deleted || d.Version != 3 || d.Owned(r.Instance, 1, claim) || d.Instance != r.Instance {
		t.Fatalf("tombstone: %+v", d)
	}
	n := d.Recreate()
	if n.Deleted || n.Version != 4 || n.Epoch != 0 || n.Instance == r.Instance || n.Lineage == r.Lineage {
		t.Fatalf("created again: %+v", n)
	}
}

func FuzzDecodeRoot(f *testing.F) {
	for _, r := range []*log.Root{sampleRoot(), {Version: 1, Format: 1, Lineage: filled(1), Instance: filled(2)}} {
		b, err := log.EncodeRoot(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 {
			b = seal(bytes.Clone(b))
		}
		r, err := log.DecodeRoot(b)
		if err != nil {
			if !errors.Is(err, log.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := log.EncodeRoot(r)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s decodes, and encodes as %s (%v)", hex.EncodeToString(b), hex.EncodeToString(again), err)
		}
	})
}
