// Package layers holds the rule of who may import whom, as tables, and the test that the tree keeps it.
//
// A package, an arrow or a module that is not in the tables fails: adding one is a line here, and a decision.
package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/steledb/stele"

// arrows are the packages of this module and what each may import of the others. They point down.
var arrows = map[string][]string{
	"datom": nil,
	"edn":   nil,
	"db":    {"datom"},
	"tx":    {"db", "datom", "edn"},

	"log":            {"datom", "internal/mutant"},
	"log/mem":        {"log", "datom"},
	"log/fs":         {"log", "datom", "internal/mutant"},
	"log/s3":         {"log"},
	"log/fs/crashfs": {"log/fs"},
	"log/pg":         {"log"},
	"log/logtest":    {"log", "datom"},

	"transactor": {"tx", "db", "log", "datom", "internal/mutant"},
	"config":     {"transactor", "tx", "db", "log", "log/fs", "log/mem", "log/pg", "log/s3", "datom"},

	"examples/tx_throughput": {"config", "transactor", "tx", "db", "log", "datom", "internal/netfault"},
	"cmd/stele":              {"config", "transactor", "tx", "db", "datom"},

	"internal/layers":            nil,
	"internal/mutant":            nil,
	"internal/mutant/mutanttest": nil,
	"internal/netfault":          nil,
	"internal/testserver":        nil,
	"internal/stores":            nil,
	"internal/sim":               nil,
	"internal/testserver/run":    {"internal/testserver"},
}

// testArrows are what the tests of a package may import beyond that.
var testArrows = map[string][]string{
	"log":                    {"log/mem", "log/logtest", "internal/mutant/mutanttest"},
	"log/mem":                {"log/logtest"},
	"log/fs":                 {"log/logtest", "log/fs/crashfs"},
	"examples/tx_throughput": {"internal/testserver"},
	"internal/stores":        {"config", "transactor", "tx", "db", "datom", "log", "log/mem", "internal/testserver", "internal/netfault"},
	"internal/sim":           {"transactor", "tx", "db", "datom", "log", "log/mem", "log/fs", "log/fs/crashfs"},
	"config":                 {"log/logtest", "internal/testserver", "internal/netfault"},
	"log/s3":                 {"log/logtest", "internal/testserver", "internal/netfault", "datom"},
	"log/fs/crashfs":         {"log/logtest", "log", "datom"},
	"log/pg":                 {"log/logtest", "internal/testserver", "internal/netfault", "datom"},
	"log/logtest":            {"log/mem"},
	"transactor":             {"log/mem", "log/fs", "log/fs/crashfs", "internal/mutant/mutanttest"},
}

// backends are imported by assembler alone: everything else is handed a log.Log.
var backends = []string{"log/mem", "log/fs", "log/pg", "log/s3"}

const assembler = "config"

// modules are the foreign modules, by the beginning of their import paths, and the packages that may import them. SDKs are
// imported by their backend alone.
var modules = map[string][]string{
	"github.com/cockroachdb/apd/v3":           {"datom", "tx", "edn"},
	"github.com/google/uuid":                  {"datom", "tx", "edn"},
	"github.com/klauspost/compress":           {"log"},
	"github.com/HdrHistogram/hdrhistogram-go": {"transactor", "examples/tx_throughput"},
	"golang.org/x/sys":                        {"log/fs"},
	"github.com/alecthomas/kong":              {"cmd/stele"},
	"github.com/schollz/progressbar/v3":       {"cmd/stele"},
	"github.com/jackc/pgx":                    {"log/pg", "internal/testserver"},
	"github.com/aws/aws-sdk-go-v2":            {"log/s3"},
	"github.com/aws/smithy-go":                {"log/s3"},
	"github.com/minio/minio-go":               {"log/s3"},
}

// testModules may be imported by any test.
var testModules = []string{"pgregory.net/rapid", "go.uber.org/goleak", "github.com/google/uuid", "github.com/cockroachdb/apd/v3", "golang.org/x/sys", "github.com/anishathalye/porcupine", "github.com/tetratelabs/wazero"}

// core is what an application always links, and coreModules all that it may bring with it, however indirectly: no SDK, no
// command line, no progress bar, no plotting.
var core = []string{"transactor", "tx", "db"}

var coreModules = []string{
	"github.com/cockroachdb/apd/v3", "github.com/google/uuid",
	"github.com/klauspost/compress", "github.com/HdrHistogram/hdrhistogram-go",
}

// pkg is what `go list -json` tells of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// name is the package's path within this module, "." for the root; ok is false for foreign packages.
func name(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// violations says everything that is wrong with the packages under a table of arrows.
func violations(pkgs []pkg, arrows map[string][]string) (out []string) {
	standard := map[string]bool{"C": false, "unsafe": true}
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	foreign := func(path string) bool {
		_, ours := name(path)
		first, _, _ := strings.Cut(path, "/")
		std, known := standard[path]
		return !ours && !std && (known || strings.Contains(first, "."))
	}
	complain := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	for _, p := range pkgs {
		from, ours := name(p.ImportPath)
		if !ours {
			continue
		}
		allowed, known := arrows[from]
		if !known && from != "." {
			complain("%s is not in the table of layers", from)
			continue
		}
		for _, path := range p.Imports {
			to, ours := name(path)
			switch {
			case path == "log":
				complain("%s imports the standard log: use log/slog", from)
			case ours && !slices.Contains(allowed, to):
				complain("%s may not import %s", from, to)
			case ours && slices.Contains(backends, to) && from != assembler && !strings.HasPrefix(from, to+"/"):
				complain("%s imports the backend %s, which is for %s alone", from, to, assembler)
			case foreign(path) && !mayImport(from, path):
				complain("%s may not import %s", from, path)
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			to, ours := name(path)
			switch {
			case path == "log":
				complain("a test of %s imports the standard log: use log/slog", from)
			case ours && from != "." && to != from && !slices.Contains(allowed, to) && !slices.Contains(testArrows[from], to):
				complain("the tests of %s may not import %s", from, to)
			case foreign(path) && !mayImport(from, path) && !under(path, testModules):
				complain("the tests of %s may not import %s", from, path)
			}
		}
		if slices.Contains(core, from) {
			for _, path := range p.Deps {
				if foreign(path) && !under(path, coreModules) {
					complain("%s brings %s with it", from, path)
				}
			}
		}
	}
	return out
}

func mayImport(from, path string) bool {
	for m, importers := range modules {
		if under(path, []string{m}) {
			return slices.Contains(importers, from)
		}
	}
	return false
}

// TestLayers holds the tree against the tables.
func TestLayers(t *testing.T) {
	pkgs := list(t)
	for _, v := range violations(pkgs, arrows) {
		t.Error(v)
	}
	found := map[string]bool{}
	for _, p := range pkgs {
		if n, ours := name(p.ImportPath); ours {
			found[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(arrows)) {
		if !found[n] {
			t.Errorf("%s is in the table of layers and not in the tree", n)
		}
	}
}

// TestNoInit: importing a package of this module does nothing.
func TestNoInit(t *testing.T) {
	files := 0
	for _, p := range list(t) {
		if _, ours := name(p.ImportPath); !ours {
			continue
		}
		sources, err := filepath.Glob(filepath.Join(p.Dir, "*.go")) // whatever their build tags
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range sources {
			files++
			file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			if hasInit(file) {
				t.Errorf("%s has an init function", f)
			}
		}
	}
	if files == 0 {
		t.Error("no source file was found")
	}
}

func hasInit(file *ast.File) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Recv == nil && f.Name.Name == "init"
	})
}

// list asks the go command for every package of the module and all that they depend on.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,TestImports,XTestImports,Deps", module+"/...")
	cmd.Dir = filepath.Join("..", "..")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(&stdout); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestViolations shows that each rule is held.
func TestViolations(t *testing.T) {
	our := func(n string, imports ...string) pkg { return pkg{ImportPath: module + "/" + n, Imports: imports} }
	for _, c := range []struct {
		pkg  pkg
		want string // "": nothing is wrong
	}{
		{our("db", module+"/datom", "slices"), ""},
		{our("db", module+"/tx"), "db may not import tx"},
		{our("datom", module+"/db"), "datom may not import db"},
		{our("pull"), "pull is not in the table of layers"},
		{our("db", module+"/pull"), "db may not import pull"},
		{our("config", module+"/log/fs"), ""},
		{our("transactor", module+"/log/fs"), "transactor may not import log/fs"},
		{our("log/fs/crashfs", module+"/log/fs"), ""},
		{our("tx", "log"), "tx imports the standard log: use log/slog"},
		{our("tx", "log/slog"), ""},
		{pkg{ImportPath: module + "/tx", TestImports: []string{"log"}}, "a test of tx imports the standard log: use log/slog"},
		{pkg{ImportPath: module + "/tx", XTestImports: []string{module + "/log"}}, "the tests of tx may not import log"},
		{pkg{ImportPath: module + "/tx", XTestImports: []string{module + "/tx", "pgregory.net/rapid"}}, ""},
		{pkg{ImportPath: module + "/tx", TestImports: []string{"github.com/stretchr/testify/require"}}, "the tests of tx may not import github.com/stretchr/testify/require"},
		{pkg{ImportPath: module + "/transactor", TestImports: []string{module + "/log/mem"}}, ""},
		{our("transactor", "github.com/jackc/pgx/v5/pgconn"), "transactor may not import github.com/jackc/pgx/v5/pgconn"},
		{our("log", "github.com/aws/aws-sdk-go-v2/service/s3"), "log may not import github.com/aws/aws-sdk-go-v2/service/s3"},
		{our("config", "github.com/minio/minio-go/v7"), "config may not import github.com/minio/minio-go/v7"},
		{our("datom", "github.com/google/uuid"), ""},
		{our("db", "github.com/google/uuid"), "db may not import github.com/google/uuid"},
		{our("log", "github.com/klauspost/compress/zstd"), ""},
		{our("log", "github.com/klauspost/compressor"), "log may not import github.com/klauspost/compressor"},
		{pkg{ImportPath: module + "/transactor", Deps: []string{"github.com/spf13/cobra", "fmt"}}, "transactor brings github.com/spf13/cobra with it"},
		{pkg{ImportPath: module + "/config", Deps: []string{"github.com/jackc/pgx/v5"}}, ""},
		{pkg{ImportPath: "github.com/other/module", Imports: []string{"log"}}, ""},
	} {
		got := strings.Join(violations([]pkg{c.pkg}, arrows), "; ")
		if got != c.want {
			t.Errorf("%s importing %s: %q, want %q", c.pkg.ImportPath, slices.Concat(c.pkg.Imports, c.pkg.TestImports, c.pkg.XTestImports, c.pkg.Deps), got, c.want)
		}
	}

	got := violations([]pkg{our("transactor", module+"/log/fs")}, map[string][]string{"transactor": {"log/fs"}})
	if want := "transactor imports the backend log/fs, which is for config alone"; len(got) != 1 || got[0] != want {
		t.Errorf("with the arrow in the table: %q, want %q", got, want)
	}
}

func TestHasInit(t *testing.T) {
	for src, want := range map[string]bool{
		"package p; func init() {}":       true,
		"package p; func (t T) init() {}": false,
		"package p; func initial() {}":    false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if hasInit(f) != want {
			t.Errorf("%q: %t, want %t", src, !want, want)
		}
	}
}
