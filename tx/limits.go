package tx

// Limits bound one transaction. They are checked before any work is done; what is beyond them is [ErrLimitExceeded]. A zero
// field takes the value of [DefaultLimits].
type Limits struct {
	ValueBytes int // bytes of one value
	Datoms     int // facts that the forms state, after expansion of maps and functions, and datoms of the delta
	Depth      int // maps and calls within one another
	Bytes      int // all values of the transaction together
}

// DefaultLimits are generous for a transaction and far below what would hurt a server. It is a constant in all but name.
var DefaultLimits = Limits{ValueBytes: 4 << 20, Datoms: 4 << 20, Depth: 64, Bytes: 256 << 20}

func (l Limits) orDefault() Limits {
	d := DefaultLimits
	if l.ValueBytes > 0 {
		d.ValueBytes = l.ValueBytes
	}
	if l.Datoms > 0 {
		d.Datoms = l.Datoms
	}
	if l.Depth > 0 {
		d.Depth = l.Depth
	}
	if l.Bytes > 0 {
		d.Bytes = l.Bytes
	}
	return d
}
