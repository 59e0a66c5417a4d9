package stele_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const crashSafety = "docs/crash-safety.md"

// A function in the text is `dir.Func`, `dir.(*Type).method` or `dir.(Type).method`, a test `TestName`.
var (
	functionName = regexp.MustCompile("`([a-z][a-z0-9/]*)\\.((?:\\(\\*?[A-Za-z]+\\)\\.)?[A-Za-z][A-Za-z0-9]*)`")
	testName     = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
)

// TestCrashSafetyPage: every function that the page names exists, every test too, and every state after a crash has one.
func TestCrashSafetyPage(t *testing.T) {
	b, err := os.ReadFile(crashSafety)
	if err != nil {
		t.Fatal(err)
	}
	functions, tests := declared(t)
	named := 0
	for i, line := range strings.Split(string(b), "\n") {
		for _, m := range functionName.FindAllStringSubmatch(line, -1) {
			if strings.HasSuffix(m[1], ".md") || strings.HasSuffix(m[2], "go") {
				continue
			}
			if named++; !functions[m[1]+"."+m[2]] {
				t.Errorf("line %d: there is no %s.%s", i+1, m[1], m[2])
			}
		}
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				t.Errorf("line %d: there is no test %s", i+1, m[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d functions are named", named)
	}
	rows, column := 0, -1
	for i, line := range strings.Split(string(b), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			column = -1
		case strings.TrimSpace(cells[len(cells)-1]) == "test":
			column = len(cells) - 1
		case strings.HasPrefix(line, "|---"), column < 0:
		default:
			if rows++; len(cells) != column+1 || !testName.MatchString(cells[column]) {
				t.Errorf("line %d: a state without a test", i+1)
			}
		}
	}
	if rows < 25 {
		t.Errorf("only %d states", rows)
	}
}

// declared are the functions of this module as the page names them, and its tests.
func declared(t *testing.T) (functions, tests map[string]bool) {
	t.Helper()
	functions, tests = map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			if strings.HasSuffix(path, "_test.go") {
				tests[name] = tests[name] || strings.HasPrefix(name, "Test")
				continue
			}
			if fn.Recv != nil {
				name = "(" + receiver(fn.Recv.List[0].Type) + ")." + name
			}
			functions[filepath.ToSlash(filepath.Dir(path))+"."+name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return functions, tests
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return "*" + receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
