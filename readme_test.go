package stele_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeExample: the code in the README is the Example that runs here, from the imports to the end, letter by letter.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```go\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !ok || !closed {
		t.Fatal("README.md has no block of Go")
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(example), ")\n\nfunc Example()")
	if !ok {
		t.Fatal("example_test.go has no Example behind its imports")
	}
	if code = "func Example()" + code; code != block {
		t.Errorf("README.md's example is not the one in example_test.go:\n%s\nand not\n%s", block, code)
	}
}
