package logtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/log/logtest"
)

// contract is what the comments on log.Log and its methods say, sentence by sentence.
func contract(t *testing.T) (sentences []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../log.go", nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(doc *ast.CommentGroup) {
		text := strings.Join(strings.Fields(doc.Text()), " ")
		for start, i := 0, 0; i < len(text); i++ {
			if end := i + 1; text[i] == '.' && (end == len(text) || text[end] == ' ') {
				sentences = append(sentences, strings.TrimSpace(text[start:end]))
				start = end
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if s, ok := n.Specs[0].(*ast.TypeSpec); ok && s.Name.Name == "Log" {
				add(n.Doc)
				for _, m := range s.Type.(*ast.InterfaceType).Methods.List {
					if m.Doc != nil { // List and Read share one
						add(m.Doc)
					}
				}
			}
			return false
		}
		return true
	})
	return sentences
}

// TestEverySentenceHasACase holds the comments on log.Log against the table: a sentence that is new or says something else now needs a case, or a
// reason why no suite can have one.
func TestEverySentenceHasACase(t *testing.T) {
	names := logtest.CaseNames()
	said := contract(t)
	if len(said) < 50 {
		t.Fatalf("only %d sentences were found", len(said))
	}
	for _, s := range said {
		if _, ok := sentences[s]; !ok {
			t.Errorf("no case is named for: %s", s)
		}
	}
	for s, by := range sentences {
		if !slices.Contains(said, s) {
			t.Errorf("the contract does not say any more: %s", s)
		}
		if reason, ok := strings.CutPrefix(by, "not here: "); ok && reason != "" {
			continue
		}
		cases := strings.Fields(by)
		if len(cases) == 0 {
			t.Errorf("nothing is named for: %s", s)
		}
		for _, c := range cases {
			if !slices.Contains(names, c) {
				t.Errorf("there is no case %s, named for: %s", c, s)
			}
		}
	}
}

// sentences are what the contract says, and the cases that test it, or "not here:" and why.
var sentences = map[string]string{
	"Log is one named database's place in a store: its root record, its objects and its blobs.":                      "Append_KeepsInstancesApart Copy_IsTheSameLog",
	"It is the contract that every backend implements (protocol.md §2); log/logtest holds a test for each sentence.": "not here: it is about this table",
	"All methods may be called concurrently.":                                                                        "Append_ConcurrentlyToDepth Read_NeverMissesWhatItHasShown Close_EndsCallsUnderWay",
	"A Log is linearizable: a Root, List, Read, Get or Verify that begins after an Append or CompareAndSwap returned — anywhere, in any process — shows it, and what one read has shown, no later one misses, unless it was sealed.": "Append_ShownAtOnceEverywhere CompareAndSwap_ShownAtOnceEverywhere Read_NeverMissesWhatItHasShown",
	"Objects, keys and roots that are passed in are not changed and may be kept; what is returned belongs to the caller but its bytes must not be changed.":                                                                          "Root_BelongsToTheCaller Blob_WriteOnce",
	"Every method returns once ctx ends, or soon after.": "Context_EveryMethodReturns Context_EndsWhileAppending Context_EndsWhileReading",
	"An error that says nothing else is one about the store being out of reach; [OutcomeOf] says of every error of Append and CompareAndSwap whether something may have been written.": "Append_IsIdempotent CompareAndSwap_OneOfSixteenWins Context_EndsWhileAppending Chain_L3_FrozenWriterWakes",

	"Info describes the store.":                 "Info_SaysWhatItIs",
	"It does not change while the Log is open.": "Info_SaysWhatItIs",

	"Root reads the root record now.":        "Root_HoldsEveryField CompareAndSwap_ShownAtOnceEverywhere",
	"ErrNoRoot: there is none.":              "Root_NoneIsErrNoRoot Copy_InterruptedLeavesNoDatabase",
	"A tombstone is returned like any root.": "CompareAndSwap_Tombstone Delete_LeavesATombstone",

	"RootAge is Root, and how long ago that root was written, by the store's own clock: a standby judges by it whether the owner's lease has run out, and nothing else depends on it (L9).": "RootAge",
	"Where the store has no clock that everybody sees alike the age is negative, and a standby judges by how long it has itself seen claim and lease counter unchanged.":                    "RootAge",
	"Like CompareAndSwap, which renews leases, it does not wait behind appends or long reads.":                                                                                              "RootAge_WaitsForNobody",

	"CompareAndSwap replaces the root old, which was read before, by next, or creates it if old is nil.": "CompareAndSwap_CreateIsCreateOnly CompareAndSwap_OldMustBeTheRoot CompareAndSwap_OneOfSixteenWins Create_OneOfSixteenWins",
	"next.Version must be old.Version+1 (1 for a create).":                                               "CompareAndSwap_VersionsFollow",
	"Nil only once the new root is durable.":                                                             "not here: whoever stops the store in the middle tests it, as the crash tests of log/fs and the kill tests do",
	"ErrConflict: the root in the store is not old, and next was not written; it is the caller's to read the root and look whether an earlier try has landed.": "CompareAndSwap_OldMustBeTheRoot CompareAndSwap_OneOfSixteenWins Root_NoneIsErrNoRoot",

	"Append writes one object.": "Append_ShownAtOnceEverywhere Append_LargeAndCompressed",
	"It is create-only and idempotent: nil only once the object is durable; if the key exists with the same chain hash the append has already happened, and nil is returned only once that is known to be durable.": "Append_IsIdempotent Append_TheSameSixteenTimes Append_OneOfSixteenWins",
	"ErrConflict: the key exists with another hash.":                                                      "Append_IsIdempotent Append_OneOfSixteenWins",
	"Appends of one owner may run concurrently, up to Info().Depth, and may become durable in any order.": "Append_ConcurrentlyToDepth Append_InAnyOrder Chain_L5_EveryOrderOfLanding",

	"Verify reads the root now.": "CompareAndSwap_ShownAtOnceEverywhere",
	"Nil: the root is that of c.Instance, c.Epoch and c.Claim, and every key in c.Keys — all of them known to be durable when the call began — is there, or sealed.": "Verify_Verdicts Verify_SealedKeysMayBeGone",
	"ErrNotOwner: there is no root, or it is a tombstone, or of another instance, epoch or claim; not an error to retry.":                                            "Verify_Verdicts CompareAndSwap_Tombstone Chain_L3_FrozenWriterWakes",
	"ErrRolledBack: a key is gone and is not sealed.":                            "not here: the contract has no way to lose an object; backends that look have tests of their own",
	"A backend that cannot lose what it made durable need not look at the keys.": "not here: it allows something",
	"Any other error: the verdict is not known.":                                 "Verify_Verdicts",

	"AppendVerify is an Append and, if that returned nil, a Verify that begins once the object is durable.":     "AppendVerify_InThisOrder",
	"appendErr is what Append returned; verifyErr what Verify did, and is meaningless if appendErr is not nil.": "AppendVerify_InThisOrder Chain_L5_ZombiesOfEveryEpoch",
	"One round trip where the store allows it.":                                                                 "not here: backends that say so count their round trips",

	"Get reads one object by its key.": "Read_OrderAndRange",
	"ErrNotFound: it is not there.":    "Read_OrderAndRange Append_KeepsInstancesApart",
	"It never blocks an Append.":       "Read_NeverBlocksAnAppend",

	"List yields the keys that are there behind after, in order, without reading the objects.":    "Read_OrderAndRange Read_TenThousandObjects",
	"Read yields the objects themselves, several prefetched.":                                     "Read_OrderAndRange Read_TenThousandObjects",
	"Memory is bounded and cost follows the range; neither ever blocks an Append.":                "Read_TenThousandObjects Read_NeverBlocksAnAppend",
	"An error ends the iteration.":                                                                "Context_EndsWhileReading",
	"An object that does not decode is yielded as a *CorruptError with its key, and ends it too.": "not here: the contract has no way to damage an object; backends do it to their own files, rows and keys",

	"Lock takes the store's own guard of ownership, where it has one (fs: flock), for as long as the owner lives; unlock gives it back.": "Lock_GuardsOwnership Lock_EndsWithTheHandle",
	"With wait it waits until ctx ends.":                                                    "Lock_WaitsUntilItIsGivenBack Lock_GuardsOwnership",
	"ErrOwned: another owner holds it.":                                                     "Lock_GuardsOwnership Delete_HeedsItsOwner",
	"Where the store has no such guard it does nothing: what proves ownership is the root.": "Lock_GuardsOwnership",

	"Adopt is called by an owner, inside its Lock and after the CAS that gave it its epoch, before it writes its start: head is the position that it is about to build on and unfenced are the objects of the chain that no later object marks as fenced, in order.": "Adopt_ThenGoOn",
	"When it returns nil they are durable, whatever a crash before did to them, and what was torn behind head is repaired.":                                                                                                                                          "Adopt_ThenGoOn",
	"The repairs are reported, for a log line; most stores have none.": "not here: it needs a crash; the crash tests of log/fs have it",

	"PutBlob writes a write-once blob and returns nil once it is durable; writing the same name again is no error; b is not kept.": "Blob_WriteOnce",
	"GetBlob reads it; ErrNotFound.": "Blob_WriteOnce Delete_Everything",

	"Delete removes objects up to and including the key upTo, of this instance: what lies at or below a sealed position.": "Delete_RemovesNothingElse Append_KeepsInstancesApart",
	"MaxKey removes everything, blobs too, once the root is a tombstone.":                                                 "Delete_Everything Delete_LeavesATombstone",
	"Below MaxKey a store may keep some of what could go (fs removes whole files only); it never removes anything else.":  "Delete_RemovesNothingElse",
	"It may stop anywhere and be called again.":                                                                           "Delete_GoesOnWhereItStopped Delete_Everything Create_OverATombstone",

	"Close releases what the handle holds.":                "Lock_EndsWithTheHandle Chain_ReopenedIsTheSame",
	"Calls under way end; later ones fail with ErrClosed.": "Close_EndsCallsUnderWay Close_LaterCallsFail",
	"Closing again does nothing.":                          "Close_LaterCallsFail",
}
