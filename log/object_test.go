package log_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
)

var rewrite = flag.Bool("rewrite", false, "write golden files that do not exist yet")

// golden compares b with a file of hexadecimal digits. A file of a released version is never edited: a change of the format is a new
// version and a new file.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *rewrite {
		var lines strings.Builder
		for line := range slices.Chunk(b, 32) {
			fmt.Fprintf(&lines, "%x\n", line)
		}
		if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s: the encoding is\n%x\nand was\n%x", path, b, want)
	}
}

func filled(c byte) (id log.ID) {
	for i := range id {
		id[i] = c
	}
	return id
}

// sampleTxs is a batch with a datom of every type and every way to name an entity.
func sampleTxs(t *testing.T) []*datom.Tx {
	t.Helper()
	user := func(n uint64) datom.ID { return datom.MakeID(datom.PartUser, n) }
	tuple, err := datom.Tuple(datom.Long(-1), datom.Value{}, datom.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	dec := datom.BigInt(new(big.Int).Lsh(big.NewInt(-5), 70))
	return []*datom.Tx{
		{T: 7, Instant: 1_700_000_000_123, Next: datom.NextIDs{Part: 5, Seq: 2051}, Datoms: []datom.Datom{
			{E: datom.TxID(7), A: 50, V: datom.InstantMilli(1_700_000_000_123), T: 7, Added: true},
			{E: user(2048), A: 2048, V: datom.String("Mira"), T: 7, Added: true},
			{E: user(2048), A: 2049, V: datom.Long(41), T: 7},
			{E: user(2048), A: 2049, V: datom.Long(42), T: 7, Added: true},
			{E: user(2049), A: 2050, V: datom.Ref(user(2048)), T: 7, Added: true},
			{E: datom.MakeID(datom.PartDB, 2050), A: 10, V: datom.KeywordValue("person/friend"), T: 7, Added: true},
		}},
		{T: 8, Instant: -5, Next: datom.NextIDs{Part: 5, Seq: 2051}},
		{T: 9, Instant: math.MaxInt64, Next: datom.NextIDs{Part: 6, Seq: datom.MaxSeq}, Datoms: []datom.Datom{
			{E: datom.MakeID(2047, datom.MaxSeq), A: user(3000), V: datom.Bool(true), T: 9, Added: true},
			{E: user(1), A: 1, V: datom.Double(-1.5), T: 9, Added: true},
			{E: user(1), A: 2, V: datom.Float(2.5), T: 9, Added: true},
			{E: user(1), A: 3, V: datom.UUID(uuid.UUID(filled(9))), T: 9, Added: true},
			{E: user(1), A: 4, V: datom.Bytes([]byte{0, 1, 0, 255}), T: 9, Added: true},
			{E: user(1), A: 5, V: tuple, T: 9, Added: true},
			{E: user(1), A: 6, V: dec, T: 9, Added: true},
			{E: user(1), A: 7, V: datom.SymbolValue("f/g"), T: 9, Added: true},
			{E: user(1), A: 8, V: datom.String(strings.Repeat("long ", 40)), T: 9},
		}},
	}
}

func sampleHeaders() (start, batch log.Header) {
	start = log.Header{Lineage: filled(1), Claim: filled(2), Epoch: 3, Kind: log.KindStart, FirstT: 7, Fenced: 5,
		Prev: log.Pos{Key: log.Key{Epoch: 1, FirstT: 4}, Hash: log.Hash{4, 5, 6}}}
	batch = log.Header{Lineage: filled(1), Claim: filled(2), Epoch: 3, Kind: log.KindBatch, FirstT: 7, Count: 3, Fenced: 6,
		Prev: log.Pos{Key: log.StartKey(3), Hash: log.Hash{7, 8, 9}}}
	return start, batch
}

func TestObjectGolden(t *testing.T) {
	start, batch := sampleHeaders()
	first := start
	first.Prev, first.FirstT, first.Fenced = log.Pos{}, 1, 0
	for _, c := range []struct {
		name string
		h    log.Header
		txs  []*datom.Tx
	}{{"object-v1-first", first, nil}, {"object-v1-start", start, nil}, {"object-v1-batch", batch, sampleTxs(t)}} {
		o, err := log.Encode(c.h, c.txs, false)
		if err != nil {
			t.Fatal(c.name, err)
		}
		golden(t, c.name, o.Bytes())
		sameObject(t, o, c.h, c.txs)
	}
	// What zstd writes may change with its version; what it wrote once must be read for ever.
	text, err := os.ReadFile("testdata/object-v1-zstd.hex")
	if errors.Is(err, os.ErrNotExist) && *rewrite {
		o, err := log.Encode(batch, sampleTxs(t), true)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "object-v1-zstd", o.Bytes())
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	o, err := log.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	sameObject(t, o, batch, sampleTxs(t))
}

// sameObject sees that o is what was encoded, also after another decoding.
func sameObject(t *testing.T, o *log.Object, h log.Header, txs []*datom.Tx) {
	t.Helper()
	again, err := log.Decode(bytes.Clone(o.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	h.Format, h.Count = log.FormatVersion, uint32(len(txs))
	for _, o := range []*log.Object{o, again} {
		if o.Header != h {
			t.Fatalf("the header is %+v, was %+v", o.Header, h)
		}
		got, err := o.AppendTxs(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range txs {
			if len(txs[i].Datoms) == 0 {
				got[i].Datoms = txs[i].Datoms // nil or empty
			}
			if !reflect.DeepEqual(got[i], txs[i]) {
				t.Fatalf("transaction %d is %+v, was %+v", i, got[i], txs[i])
			}
		}
		if len(got) != len(txs) {
			t.Fatalf("%d transactions, were %d", len(got), len(txs))
		}
	}
	if again.Hash() != o.Hash() || again.Pos() != o.Pos() || o.Key() != h.Key() || o.Size() != len(o.Bytes()) || again.PayloadSize() != o.PayloadSize() {
		t.Fatal("the decoded object is another one")
	}
}

func genValue() *rapid.Generator[datom.Value] {
	scalar := rapid.OneOf(
		rapid.Map(rapid.Int64(), datom.Long),
		rapid.Map(rapid.String(), datom.String),
		rapid.Map(rapid.Bool(), datom.Bool),
		rapid.Map(rapid.Float64(), datom.Double),
		rapid.Map(rapid.Int64(), datom.InstantMilli),
		rapid.Map(rapid.SliceOf(rapid.Byte()), datom.Bytes),
		rapid.Map(rapid.Uint64Range(0, uint64(datom.MaxID)-1), func(n uint64) datom.Value { return datom.Ref(datom.ID(n)) }),
	)
	return rapid.Custom(func(t *rapid.T) datom.Value {
		if rapid.IntRange(0, 9).Draw(t, "tuple") > 0 {
			return scalar.Draw(t, "v")
		}
		v, err := datom.Tuple(rapid.SliceOfN(scalar, datom.MinTuple, datom.MaxTuple).Draw(t, "elems")...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
}

func genTx(tt uint64) *rapid.Generator[*datom.Tx] {
	return rapid.Custom(func(t *rapid.T) *datom.Tx {
		tx := &datom.Tx{T: tt, Instant: rapid.Int64().Draw(t, "instant"),
			Next: datom.NextIDs{Part: rapid.Uint64().Draw(t, "part"), Seq: rapid.Uint64().Draw(t, "seq")}}
		n := rapid.IntRange(0, 12).Draw(t, "datoms")
		for range n {
			e := datom.ID(rapid.Uint64Range(0, uint64(datom.MaxID)-1).Draw(t, "e"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				e = datom.TxID(tt)
			case 1:
				e = datom.MakeID(datom.PartUser, rapid.Uint64Range(0, datom.MaxSeq).Draw(t, "user"))
			case 2:
				if len(tx.Datoms) > 0 {
					e = tx.Datoms[len(tx.Datoms)-1].E
				}
			}
			tx.Datoms = append(tx.Datoms, datom.Datom{E: e, A: datom.ID(rapid.Uint64Range(0, uint64(datom.MaxID)-1).Draw(t, "a")),
				V: genValue().Draw(t, "v"), T: tt, Added: rapid.Bool().Draw(t, "added")})
		}
		return tx
	})
}

func TestObjectRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, h := sampleHeaders()
		h.FirstT = rapid.Uint64Range(7, 1<<40).Draw(rt, "first t")
		h.Fenced = rapid.Uint64Range(0, h.FirstT-1).Draw(rt, "fenced")
		n := rapid.IntRange(1, 5).Draw(rt, "count")
		h.Count = uint32(n)
		var txs []*datom.Tx
		for i := range n {
			txs = append(txs, genTx(h.FirstT+uint64(i)).Draw(rt, "tx"))
		}
		o, err := log.Encode(h, txs, rapid.Bool().Draw(rt, "compress"))
		if err != nil {
			rt.Fatal(err)
		}
		sameObject(t, o, h, txs)
		size, err := log.ObjectSize(o.Bytes()[:log.HeaderSize])
		if err != nil || size != o.Size() {
			rt.Fatalf("the header says %d bytes (%v), it is %d", size, err, o.Size())
		}
	})
}

func TestEncodeRefuses(t *testing.T) {
	start, batch := sampleHeaders()
	for _, c := range []struct {
		name string
		h    func() log.Header
		txs  func() []*datom.Tx
	}{
		{"a gap in t", func() log.Header { return batch }, func() []*datom.Tx { x := sampleTxs(t); x[1].T++; return x }},
		{"another first t", func() log.Header { h := batch; h.FirstT++; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"another count", func() log.Header { h := batch; h.Count = 2; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"a start with transactions", func() log.Header { return start }, func() []*datom.Tx { return sampleTxs(t) }},
		{"an empty batch", func() log.Header { h := batch; h.Count = 0; return h }, func() []*datom.Tx { return nil }},
		{"a datom of another t", func() log.Header { return batch }, func() []*datom.Tx { x := sampleTxs(t); x[0].Datoms[2].T = 8; return x }},
		{"a datom without a value", func() log.Header { return batch }, func() []*datom.Tx { x := sampleTxs(t); x[0].Datoms[2].V = datom.Value{}; return x }},
		{"an id too large", func() log.Header { return batch }, func() []*datom.Tx { x := sampleTxs(t); x[0].Datoms[2].E = datom.MaxID; return x }},
		{"fenced at its own t", func() log.Header { h := batch; h.Fenced = 7; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"no claim", func() log.Header { h := batch; h.Claim = log.ID{}; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"no lineage", func() log.Header { h := batch; h.Lineage = log.ID{}; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"epoch 0", func() log.Header { h := start; h.Epoch, h.Prev = 0, log.Pos{}; return h }, func() []*datom.Tx { return nil }},
		{"previous of another epoch", func() log.Header { h := batch; h.Prev.Key.Epoch--; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"previous without a hash", func() log.Header { h := batch; h.Prev.Hash = log.Hash{}; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"a start behind its own epoch", func() log.Header { h := start; h.Prev.Key.Epoch = 3; return h }, func() []*datom.Tx { return nil }},
		{"the first object at t 7", func() log.Header { h := start; h.Prev = log.Pos{}; return h }, func() []*datom.Tx { return nil }},
		{"a format to come", func() log.Header { h := batch; h.Format = 2; return h }, func() []*datom.Tx { return sampleTxs(t) }},
		{"no kind", func() log.Header { h := batch; h.Kind = 0; return h }, func() []*datom.Tx { return sampleTxs(t) }},
	} {
		if o, err := log.Encode(c.h(), c.txs(), false); err == nil {
			t.Errorf("%s: encoded as %s", c.name, o.Key())
		}
	}
}

// seal puts the right checksum behind a header and payload that were tampered with.
func seal(b []byte) []byte {
	n := len(b) - 4
	binary.BigEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func TestDecodeRefuses(t *testing.T) {
	_, h := sampleHeaders()
	o, err := log.Encode(h, sampleTxs(t), false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Size() {
		b := bytes.Clone(o.Bytes())
		b[i] ^= 0x10
		if _, err := log.Decode(b); !errors.Is(err, log.ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := log.Decode(o.Bytes()[:i]); !errors.Is(err, log.ErrCorrupt) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
	}
	if _, err := log.Decode(append(bytes.Clone(o.Bytes()), 0)); !errors.Is(err, log.ErrCorrupt) {
		t.Fatalf("one byte more: %v", err)
	}
	put := func(at int, p ...byte) func([]byte) { return func(b []byte) { copy(b[at:], p) } }
	for name, change := range map[string]func([]byte){
		"version":                 put(4, 0, 2),
		"kind":                    put(6, 3),
		"flags":                   put(7, 2),
		"compressed, same length": put(7, 1),
		"epoch 0":                 put(40, 0, 0, 0, 0, 0, 0, 0, 0),
		"fenced":                  put(56, 1),
		"count 0":                 put(112, 0, 0, 0, 0),
		"count huge":              put(112, 255, 255, 255, 255),
		"uncompressed huge":       put(116, 255, 255, 255, 255),
		"uncompressed other":      put(116, 0, 0, 0, 1),
	} {
		b := bytes.Clone(o.Bytes())
		change(b)
		if _, err := log.Decode(seal(b)); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	payload := bytes.Clone(o.Bytes())
	put(120, 255, 255, 255, 255)(payload)
	if _, err := log.Decode(payload); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("payload huge: %v", err)
	}
}

// TestRecordsRefuse changes every byte of the records, under a right checksum: the records are refused, or they say something else
// that has the same form. No change crashes.
func TestRecordsRefuse(t *testing.T) {
	_, h := sampleHeaders()
	o, err := log.Encode(h, sampleTxs(t), false)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := log.HeaderSize; i < o.Size()-4; i++ {
		for _, x := range []byte{1, 0x10, 0x80, 0xff} {
			b := bytes.Clone(o.Bytes())
			b[i] ^= x
			c, err := log.Decode(seal(b))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = c.AppendTxs(nil); errors.Is(err, log.ErrCorrupt) {
				refused++
			} else if err != nil {
				t.Fatalf("byte %d: not a CorruptError: %v", i, err)
			}
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
	unknown := bytes.Clone(o.Bytes())
	unknown[log.HeaderSize+1] = 9 // the first tag, behind the length of one byte
	c, err := log.Decode(seal(unknown))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AppendTxs(nil); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "field 9") {
		t.Fatalf("an unknown tag: %v", err)
	}
}

// raw decodes an object with this header and these bytes as its payload, under a right checksum.
func raw(t *testing.T, h log.Header, payload []byte) ([]*datom.Tx, error) {
	t.Helper()
	o, err := log.Encode(h, []*datom.Tx{{T: h.FirstT}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b := append(bytes.Clone(o.Bytes()[:log.HeaderSize]), payload...)
	binary.BigEndian.PutUint32(b[116:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[120:], uint32(len(payload)))
	if o, err = log.Decode(seal(append(b, 0, 0, 0, 0))); err != nil {
		return nil, err
	}
	return o.AppendTxs(nil)
}

// TestRecordRefuses writes records by hand, as doc.go says, and then wrongly.
func TestRecordRefuses(t *testing.T) {
	_, h := sampleHeaders()
	h.Count = 1
	fields := func(parts ...string) []byte { // hexadecimal
		body, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{byte(len(body))}, body...)
	}
	const tt, instant, next, one = "01 07", "02 0a", "03 05 8010", "04 01 03 32 18 8107" // a datom: own entity, attribute 50, long 7
	txs, err := raw(t, h, fields(tt, instant, next, one))
	if err != nil {
		t.Fatal(err)
	}
	want := &datom.Tx{T: 7, Instant: 5, Next: datom.NextIDs{Part: 5, Seq: 2048}, Datoms: []datom.Datom{
		{E: datom.TxID(7), A: 50, V: datom.Long(7), T: 7, Added: true}}}
	if !reflect.DeepEqual(txs[0], want) {
		t.Fatalf("%+v, want %+v", txs[0], want)
	}
	for name, payload := range map[string][]byte{
		"another t":                     fields("01 08", instant, next, one),
		"something behind it":           append(fields(tt, instant, next, one), 0),
		"a second record":               append(fields(tt, instant, next, one), fields("01 08", instant, next, one)...),
		"a field twice":                 fields(tt, instant, instant, next, one),
		"fields out of order":           fields(instant, tt, next, one),
		"a field left out":              fields(tt, next, one),
		"the datoms left out":           fields(tt, instant, next),
		"a field behind the datoms":     fields(tt, instant, next, one, "05 01"),
		"t in a longer form":            fields("01 8700", instant, next, one),
		"a number of eleven bytes":      fields("01 ffffffffffffffffffff01", instant, next, one),
		"2^28 datoms":                   fields(tt, instant, next, "04 8080808001 03 32 18 8107"),
		"two datoms, one there":         fields(tt, instant, next, "04 02 03 32 18 8107"),
		"a head that is not known":      fields(tt, instant, next, "04 01 0b 32 18 8107"),
		"no datom before the first":     fields(tt, instant, next, "04 01 01 32 18 8107"),
		"a sequence that is too large":  fields(tt, instant, next, "04 01 05 80808080808002 32 18 8107"),
		"an entity that is too large":   fields(tt, instant, next, "04 01 07 8080808080808010 32 18 8107"),
		"an attribute that is no id":    fields(tt, instant, next, "04 01 03 8080808080808010 18 8107"),
		"a value of an unknown kind":    fields(tt, instant, next, "04 01 03 32 19 8107"),
		"a value that is not canonical": fields(tt, instant, next, "04 01 03 32 18 820007"),
		"longer than the payload":       append([]byte{99}, fields(tt, instant, next, one)[1:]...),
	} {
		if txs, err := raw(t, h, payload); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, txs, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	start, batch := sampleHeaders()
	txs := []*datom.Tx{{T: 7, Instant: 5, Datoms: []datom.Datom{{E: datom.TxID(7), A: 50, V: datom.String("fact"), T: 7, Added: true}}}}
	batch.Count = 1
	for _, compress := range []bool{false, true} {
		o, err := log.Encode(batch, txs, compress)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(o.Bytes())
	}
	if o, err := log.Encode(start, nil, false); err == nil {
		f.Add(o.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 {
			b = seal(bytes.Clone(b)) // or no input but the seeds would pass the checksum
		}
		o, err := log.Decode(b)
		if err != nil {
			if !errors.Is(err, log.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		txs, err := o.AppendTxs(nil)
		if err != nil {
			if !errors.Is(err, log.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := log.Encode(o.Header, txs, false)
		if err != nil {
			t.Fatalf("decoded, and does not encode: %v", err)
		}
		sameObject(t, again, o.Header, txs)
	})
}

func benchmarkBatch(b *testing.B) (log.Header, []*datom.Tx) {
	_, h := sampleHeaders()
	rnd := rand.New(rand.NewPCG(1, 2))
	var txs []*datom.Tx
	for i := range uint64(256) {
		t := h.FirstT + i
		e := datom.MakeID(datom.PartUser, 1_000_000+i)
		txs = append(txs, &datom.Tx{T: t, Instant: 1_700_000_000_000 + int64(i), Next: datom.NextIDs{Part: 5, Seq: 1_000_001 + i}, Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.InstantMilli(1_700_000_000_000 + int64(i)), T: t, Added: true},
			{E: e, A: 2048, V: datom.String(fmt.Sprintf("user-%d@example.org", rnd.Uint32())), T: t, Added: true},
			{E: e, A: 2049, V: datom.String(fmt.Sprintf("some text and %016x", rnd.Uint64())), T: t, Added: true},
		}})
	}
	h.Count = 256
	return h, txs
}

func BenchmarkEncode(b *testing.B) {
	for _, compress := range []bool{false, true} {
		b.Run(fmt.Sprintf("zstd=%t", compress), func(b *testing.B) {
			h, txs := benchmarkBatch(b)
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				o, err := log.Encode(h, txs, compress)
				if err != nil {
					b.Fatal(err)
				}
				_ = o.Hash()
				size = o.Size()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/tx")
			b.ReportMetric(float64(size)/256, "bytes/tx")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, compress := range []bool{false, true} {
		b.Run(fmt.Sprintf("zstd=%t", compress), func(b *testing.B) {
			h, txs := benchmarkBatch(b)
			o, err := log.Encode(h, txs, compress)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var buf []*datom.Tx
			for b.Loop() {
				o, err := log.Decode(o.Bytes())
				if err != nil {
					b.Fatal(err)
				}
				_ = o.Hash()
				if buf, err = o.AppendTxs(buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/tx")
		})
	}
}
