package logtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
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

func TestPrint(t *testing.T) {
	for _, s := range contract(t) {
		t.Logf("%q", s)
	}
}
