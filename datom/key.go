package datom

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

// The payload behind each kind's tag byte:
//
//	boolean            0 or 1
//	long, instant      0x80+n and the n significant bytes, big-endian, of a number >= 0;
//	                   0x7f-n and the n bytes of ^number, complemented, of one below
//	bigint             sign (0, 1 = zero, 2), then, unless zero, length (4 bytes) and magnitude, both complemented if negative
//	bigdec             sign, then, unless zero, the exponent E of 0.d1d2d3… × 10^E (4 bytes, sign bit flipped) and the digits, two a
//	                   byte as 1 + d1*10 + d2, then 0; all but the sign complemented if negative
//	float, double      4 or 8 bytes: the bits with the sign bit flipped, or all complemented if negative
//	keyword … bytes    the bytes, each 0x00 as 0x00 0xff, then 0x00 0x01
//	uuid               16 bytes
//	ref                n and the n significant bytes, big-endian
//	tuple              each element's encoding with its tag (nil: 0x01), then 0x00
//
// The log and the indexes both hold these bytes.

// ErrEncoding is wrapped by every error of a decoder in this package.
var ErrEncoding = errors.New("malformed value encoding")

func encodingError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrEncoding, fmt.Sprintf(format, args...))
}

// AppendKey appends the order-preserving encoding of v, which must not be nil.
func (v Value) AppendKey(b []byte) []byte {
	b = append(b, byte(v.kind))
	switch v.kind {
	case KindBoolean:
		return append(b, byte(v.num))
	case KindLong, KindInstant:
		return appendInt(b, int64(v.num))
	case KindFloat:
		return binary.BigEndian.AppendUint32(b, floatOrder32(uint32(v.num)))
	case KindDouble:
		return binary.BigEndian.AppendUint64(b, floatOrder64(v.num))
	case KindKeyword, KindSymbol, KindString, KindURI, KindBytes:
		return appendEscaped(b, v.str)
	case KindRef:
		return AppendID(b, ID(v.num))
	case KindTuple:
		b = append(b, v.str...)
		return append(b, 0)
	default: // bigint, bigdec, uuid
		return append(b, v.str...)
	}
}

// A tuple's elements are tagged values; nil is 0x01, which is below every tag and above the tuple's end, 0x00.
const nilElem = 0x01

func (v Value) appendElem(b []byte) []byte {
	if v.kind == KindNil {
		return append(b, nilElem)
	}
	return v.AppendKey(b)
}

func decodeElem(b []byte) (Value, int, error) {
	if len(b) > 0 && b[0] == nilElem {
		return Value{}, 1, nil
	}
	if len(b) > 0 && Kind(b[0]) == KindTuple {
		return Value{}, 0, encodingError("a tuple in a tuple")
	}
	return DecodeKey(b)
}

// DecodeKey reads one encoded value from the front of b and says how many bytes it took. It accepts canonical encodings
// only, so that re-encoding gives the same bytes; everything else is an error that wraps ErrEncoding. The value shares
// no memory with b.
func DecodeKey(b []byte) (Value, int, error) {
	if len(b) < 2 {
		return Value{}, 0, encodingError("truncated")
	}
	k, p := Kind(b[0]), b[1:]
	switch k {
	case KindBoolean:
		if p[0] > 1 {
			return Value{}, 0, encodingError("boolean %d", p[0])
		}
		return Value{kind: k, num: uint64(p[0])}, 2, nil
	case KindLong, KindInstant:
		n, used, err := decodeInt(p)
		return Value{kind: k, num: uint64(n)}, 1 + used, err
	case KindFloat:
		if len(p) < 4 {
			return Value{}, 0, encodingError("truncated")
		}
		u := binary.BigEndian.Uint32(p)
		v := Float(math.Float32frombits(floatBits32(u)))
		if floatOrder32(uint32(v.num)) != u {
			return Value{}, 0, encodingError("float is not canonical")
		}
		return v, 5, nil
	case KindDouble:
		if len(p) < 8 {
			return Value{}, 0, encodingError("truncated")
		}
		u := binary.BigEndian.Uint64(p)
		v := Double(math.Float64frombits(floatBits64(u)))
		if floatOrder64(v.num) != u {
			return Value{}, 0, encodingError("double is not canonical")
		}
		return v, 9, nil
	case KindKeyword, KindSymbol, KindString, KindURI, KindBytes:
		s, used, err := decodeEscaped(p)
		if err == nil && k != KindBytes && !utf8.ValidString(s) {
			err = encodingError("invalid UTF-8")
		}
		return Value{kind: k, str: s}, 1 + used, err
	case KindUUID:
		if len(p) < 16 {
			return Value{}, 0, encodingError("truncated")
		}
		return Value{kind: k, str: string(p[:16])}, 17, nil
	case KindRef:
		id, used, err := DecodeID(p)
		return Value{kind: k, num: uint64(id)}, 1 + used, err
	case KindBigInt:
		n, err := checkBigInt(p)
		if err != nil {
			return Value{}, 0, err
		}
		return encoded(k, p[:n]), 1 + n, nil
	case KindBigDec:
		n, err := checkBigDec(p)
		if err != nil {
			return Value{}, 0, err
		}
		return encoded(k, p[:n]), 1 + n, nil
	case KindTuple:
		n, i := 0, 0
		for {
			if i >= len(p) {
				return Value{}, 0, encodingError("truncated")
			}
			if p[i] == 0 {
				break
			}
			if n++; n > MaxTuple {
				return Value{}, 0, encodingError("more than %d elements in a tuple", MaxTuple)
			}
			_, used, err := decodeElem(p[i:])
			if err != nil {
				return Value{}, 0, err
			}
			i += used
		}
		if n < MinTuple {
			return Value{}, 0, encodingError("%d elements in a tuple", n)
		}
		return encoded(k, p[:i]), 2 + i, nil
	default:
		return Value{}, 0, encodingError("unknown kind %#x", b[0])
	}
}

// KeyLen is how many bytes the encoded value at the front of b takes, without decoding it. b must hold a valid encoding.
func KeyLen(b []byte) int {
	switch Kind(b[0]) {
	case KindBoolean:
		return 2
	case KindLong, KindInstant:
		return 2 + intLen(b[1])
	case KindFloat:
		return 5
	case KindDouble:
		return 9
	case KindKeyword, KindSymbol, KindString, KindURI, KindBytes:
		return 1 + escapedLen(b[1:])
	case KindUUID:
		return 17
	case KindRef:
		return 2 + int(b[1])
	case KindTuple:
		i := 1
		for b[i] != 0 {
			if b[i] == nilElem {
				i++
			} else {
				i += KeyLen(b[i:])
			}
		}
		return i + 1
	case KindBigInt:
		n, _ := checkBigInt(b[1:])
		return 1 + n
	case KindBigDec:
		n, _ := checkBigDec(b[1:])
		return 1 + n
	default:
		return 0
	}
}

// AppendID appends the order-preserving encoding of an id: the number of its significant bytes, then those, big-endian.
func AppendID(b []byte, id ID) []byte {
	n := (bits.Len64(uint64(id)) + 7) / 8
	b = append(b, byte(n))
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(id>>(8*i)))
	}
	return b
}

// DecodeID reads what AppendID wrote and says how many bytes it took.
func DecodeID(b []byte) (ID, int, error) {
	if len(b) == 0 || b[0] > 7 || len(b) < 1+int(b[0]) {
		return 0, 0, encodingError("id is truncated or too large")
	}
	n := int(b[0])
	var id ID
	for _, c := range b[1 : 1+n] {
		id = id<<8 | ID(c)
	}
	if n > 0 && b[1] == 0 || id >= MaxID {
		return 0, 0, encodingError("id is not canonical")
	}
	return id, 1 + n, nil
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		u := uint64(^n)
		k := (bits.Len64(u) + 7) / 8
		b = append(b, byte(0x7f-k))
		for i := k - 1; i >= 0; i-- {
			b = append(b, ^byte(u>>(8*i)))
		}
		return b
	}
	k := (bits.Len64(uint64(n)) + 7) / 8
	b = append(b, byte(0x80+k))
	for i := k - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

func intLen(c byte) int {
	if c < 0x80 {
		return int(0x7f - c)
	}
	return int(c - 0x80)
}

func decodeInt(b []byte) (int64, int, error) {
	k := intLen(b[0])
	if k > 8 || len(b) < 1+k {
		return 0, 0, encodingError("integer is truncated or too large")
	}
	var u uint64
	for _, c := range b[1 : 1+k] {
		if b[0] < 0x80 {
			c = ^c
		}
		u = u<<8 | uint64(c)
	}
	if u > math.MaxInt64 || (bits.Len64(u)+7)/8 != k {
		return 0, 0, encodingError("integer is not canonical")
	}
	if b[0] < 0x80 {
		return ^int64(u), 1 + k, nil
	}
	return int64(u), 1 + k, nil
}

func floatOrder64(u uint64) uint64 {
	if u>>63 != 0 {
		return ^u
	}
	return u | 1<<63
}

func floatBits64(o uint64) uint64 {
	if o>>63 != 0 {
		return o &^ (1 << 63)
	}
	return ^o
}

func floatOrder32(u uint32) uint32 {
	if u>>31 != 0 {
		return ^u
	}
	return u | 1<<31
}

func floatBits32(o uint32) uint32 {
	if o>>31 != 0 {
		return o &^ (1 << 31)
	}
	return ^o
}

func appendEscaped(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			b = append(b, s...)
			return append(b, 0, 1)
		}
		b = append(b, s[:i]...)
		b = append(b, 0, 0xff)
		s = s[i+1:]
	}
}

func decodeEscaped(b []byte) (string, int, error) {
	var out []byte
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], 0)
		if j < 0 || i+j+1 >= len(b) {
			return "", 0, encodingError("text is not terminated")
		}
		j += i
		switch b[j+1] {
		case 1:
			if out == nil {
				return string(b[:j]), j + 2, nil
			}
			return string(append(out, b[i:j]...)), j + 2, nil
		case 0xff:
			out = append(append(out, b[i:j]...), 0)
			i = j + 2
		default:
			return "", 0, encodingError("bad escape %#x", b[j+1])
		}
	}
}

func escapedLen(b []byte) int {
	for i := 0; ; i += 2 {
		i += bytes.IndexByte(b[i:], 0)
		if b[i+1] == 1 {
			return i + 2
		}
	}
}

const (
	negative = 0
	zero     = 1
	positive = 2
)

func appendBigInt(b []byte, n *big.Int) []byte {
	if n.Sign() == 0 {
		return append(b, zero)
	}
	mag := n.Bytes()
	if n.Sign() > 0 {
		b = append(b, positive)
		b = binary.BigEndian.AppendUint32(b, uint32(len(mag)))
		return append(b, mag...)
	}
	b = append(b, negative)
	b = binary.BigEndian.AppendUint32(b, ^uint32(len(mag)))
	return append(b, complement(mag)...)
}

// checkBigInt is the length of the canonical payload at the front of b. Nothing is converted, so its cost is that of
// reading a few bytes.
func checkBigInt(b []byte) (int, error) {
	if len(b) == 0 || b[0] > positive {
		return 0, encodingError("bigint sign")
	}
	if b[0] == zero {
		return 1, nil
	}
	if len(b) < 6 {
		return 0, encodingError("truncated")
	}
	size, first := binary.BigEndian.Uint32(b[1:]), b[5]
	if b[0] == negative {
		size, first = ^size, ^first
	}
	if size == 0 || uint64(size) > uint64(len(b)-5) {
		return 0, encodingError("bigint of %d bytes", size)
	}
	if first == 0 {
		return 0, encodingError("bigint is not canonical")
	}
	return 5 + int(size), nil
}

// decodeBigInt reads a payload that checkBigInt accepted, or zero.
func decodeBigInt(b []byte) *big.Int {
	n := new(big.Int)
	if len(b) < 6 {
		return n
	}
	if b[0] == negative {
		n.SetBytes(complement(b[5:]))
		return n.Neg(n)
	}
	return n.SetBytes(b[5:])
}

func appendBigDec(b []byte, d *apd.Decimal) ([]byte, error) {
	if d.Coeff.Sign() == 0 {
		return append(b, zero), nil
	}
	text := d.Coeff.Text(10) // the coefficient is never negative
	exp := int64(len(text)) + int64(d.Exponent)
	if exp > MaxDecimalExponent || exp < -MaxDecimalExponent {
		return nil, fmt.Errorf("the decimal's exponent %d is out of range", exp)
	}
	digits := strings.TrimRight(text, "0")
	body := binary.BigEndian.AppendUint32(nil, uint32(int32(exp))^1<<31)
	for i := 0; i < len(digits); i += 2 {
		c := (digits[i] - '0') * 10
		if i+1 < len(digits) {
			c += digits[i+1] - '0'
		}
		body = append(body, c+1)
	}
	body = append(body, 0)
	if d.Negative {
		return append(append(b, negative), complement(body)...), nil
	}
	return append(append(b, positive), body...), nil
}

// checkBigDec is the length of the canonical payload at the front of b. Nothing is converted.
func checkBigDec(b []byte) (int, error) {
	if len(b) == 0 || b[0] > positive {
		return 0, encodingError("bigdec sign")
	}
	if b[0] == zero {
		return 1, nil
	}
	var flip byte
	if b[0] == negative {
		flip = 0xff
	}
	end := 5
	for end < len(b) && b[end]^flip != 0 {
		if b[end]^flip > 100 {
			return 0, encodingError("bigdec digit")
		}
		end++
	}
	if end >= len(b) || end == 5 {
		return 0, encodingError("bigdec is truncated")
	}
	// Two digits a byte: the first is not 0, and the last byte not 00 (it ends in 0 if the number of digits is odd).
	if b[5]^flip-1 < 10 || b[end-1]^flip == 1 {
		return 0, encodingError("bigdec is not canonical")
	}
	if exp := decimalExponent(b); exp > MaxDecimalExponent || exp < -MaxDecimalExponent {
		return 0, encodingError("bigdec exponent %d", exp)
	}
	return end + 1, nil
}

func decimalExponent(b []byte) int64 {
	u := binary.BigEndian.Uint32(b[1:])
	if b[0] == negative {
		u = ^u
	}
	return int64(int32(u ^ 1<<31))
}

// decodeBigDec reads a payload that checkBigDec accepted, or zero.
func decodeBigDec(b []byte) *apd.Decimal {
	d := new(apd.Decimal)
	if len(b) < 7 {
		return d
	}
	if d.Negative = b[0] == negative; d.Negative {
		b = append([]byte{positive}, complement(b[1:])...)
	}
	text := make([]byte, 0, 2*len(b))
	for _, c := range b[5 : len(b)-1] {
		text = append(text, '0'+(c-1)/10, '0'+(c-1)%10)
	}
	text = bytes.TrimSuffix(text, []byte("0"))
	d.Coeff.SetString(string(text), 10)
	d.Exponent = int32(decimalExponent(b) - int64(len(text)))
	return d
}

func complement(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[i] = ^c
	}
	return out
}
