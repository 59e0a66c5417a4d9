package tx

import (
	"fmt"
	"strings"
)

// Kind is why a transaction was refused. The order of kinds is that in which faults of one phase are reported.
type Kind uint8

// The kinds of refusals. Those marked "conflict" say that another transaction got there first; all others are incorrect
// as they are.
const (
	NotAnEntity Kind = iota + 1
	NotAnAttribute
	WrongType
	UniqueConflict    // conflict
	ConflictingUpsert // conflict
	DatomsConflict
	CASFailed // conflict
	CASCardinality
	TempidNotAnEntity
	InvalidLookupRef
	NestedWithoutIdentity
	PastTxInstant // conflict
	FutureTxInstant
	ImmutableFact
	IdempotencyMismatch
	InvalidSchema
	InvalidAlteration
	AttrPredFailed
	EntityPredFailed
	MissingEntityAttrs
	UnknownFunction
	FunctionFailed
	LimitExceeded
	Malformed
)

var kindNames = [...]string{
	NotAnEntity: "not-an-entity", NotAnAttribute: "not-an-attribute", WrongType: "wrong-type-for-attribute",
	UniqueConflict: "unique-conflict", ConflictingUpsert: "conflicting-upsert", DatomsConflict: "datoms-conflict",
	CASFailed: "cas-failed", CASCardinality: "cas-cardinality", TempidNotAnEntity: "tempid-not-an-entity",
	InvalidLookupRef: "invalid-lookup-ref", NestedWithoutIdentity: "nested-entity-without-identity",
	PastTxInstant: "past-tx-instant", FutureTxInstant: "future-tx-instant", ImmutableFact: "immutable-fact",
	IdempotencyMismatch: "idempotency-mismatch", InvalidSchema: "invalid-schema", InvalidAlteration: "invalid-alteration",
	AttrPredFailed: "attr-pred-failed", EntityPredFailed: "entity-pred-failed", MissingEntityAttrs: "missing-entity-attrs",
	UnknownFunction: "unknown-function", FunctionFailed: "function-failed", LimitExceeded: "limit-exceeded", Malformed: "malformed",
}

// String is the kind's name in tx-semantics, such as "not-an-entity".
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Conflict reports whether a refusal of this kind means that another transaction got there first: the same data, judged by the
// value that is there now, may be worth another try.
func (k Kind) Conflict() bool {
	return k == UniqueConflict || k == ConflictingUpsert || k == CASFailed || k == PastTxInstant
}

// Error is why a transaction was refused. Its text does not depend on the order of the transaction's forms. errors.Is finds
// the sentinel of its kind ([ErrNotAnEntity] …), errors.As the Error itself.
type Error struct {
	Kind Kind
	// Pos is where the offending form stood, as far as it is known; of several, the first. It is no part of the text.
	Pos Pos
	// Entity, Attr and Value are what the refusal is about, as far as it is about one: the entity as it was written or as it
	// was resolved, the attribute by its ident (or its id, if it has none), the value. Empty otherwise.
	Entity string
	Attr   string
	Value  string
	// Msg is a sentence for a person: what is wrong, and how to put it right.
	Msg string
	// Err is the cause, where there is one: what a function or a predicate returned.
	Err error
}

// Error is the kind and the sentence.
func (e *Error) Error() string { return e.Kind.String() + ": " + e.Msg }

// Conflict is that of the kind.
func (e *Error) Conflict() bool { return e.Kind.Conflict() }

// Is reports whether target is the sentinel of e's kind.
func (e *Error) Is(target error) bool { s, ok := target.(sentinel); return ok && Kind(s) == e.Kind }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// At is e with where it happened, for a log line or a command's user: "line 3, column 7: …".
func (e *Error) At() string {
	var b strings.Builder
	switch {
	case e.Pos.Line > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", e.Pos.Line, e.Pos.Column)
	case e.Pos.Form > 0:
		fmt.Fprintf(&b, "form %d: ", e.Pos.Form)
	}
	b.WriteString(e.Error())
	return b.String()
}

type sentinel Kind

func (s sentinel) Error() string { return Kind(s).String() }

// One sentinel per kind, for errors.Is.
const (
	ErrNotAnEntity           = sentinel(NotAnEntity)
	ErrNotAnAttribute        = sentinel(NotAnAttribute)
	ErrWrongType             = sentinel(WrongType)
	ErrUniqueConflict        = sentinel(UniqueConflict)
	ErrConflictingUpsert     = sentinel(ConflictingUpsert)
	ErrDatomsConflict        = sentinel(DatomsConflict)
	ErrCASFailed             = sentinel(CASFailed)
	ErrCASCardinality        = sentinel(CASCardinality)
	ErrTempidNotAnEntity     = sentinel(TempidNotAnEntity)
	ErrInvalidLookupRef      = sentinel(InvalidLookupRef)
	ErrNestedWithoutIdentity = sentinel(NestedWithoutIdentity)
	ErrPastTxInstant         = sentinel(PastTxInstant)
	ErrFutureTxInstant       = sentinel(FutureTxInstant)
	ErrImmutableFact         = sentinel(ImmutableFact)
	ErrIdempotencyMismatch   = sentinel(IdempotencyMismatch)
	ErrInvalidSchema         = sentinel(InvalidSchema)
	ErrInvalidAlteration     = sentinel(InvalidAlteration)
	ErrAttrPredFailed        = sentinel(AttrPredFailed)
	ErrEntityPredFailed      = sentinel(EntityPredFailed)
	ErrMissingEntityAttrs    = sentinel(MissingEntityAttrs)
	ErrUnknownFunction       = sentinel(UnknownFunction)
	ErrFunctionFailed        = sentinel(FunctionFailed)
	ErrLimitExceeded         = sentinel(LimitExceeded)
	ErrMalformed             = sentinel(Malformed)
)
