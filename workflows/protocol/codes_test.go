package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var isCode = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

// givers are the calls that give a code, by the place of the code among their arguments.
var givers = map[string]int{"Errorf": 0, "refused": 0, "object": 0, "block": 1, "patiently": 2, "wait": 0}

// Every code that the sources give is explained: named constants (Code...), and texts where a code is given.
func TestEveryCodeOfTheSourcesIsListed(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"activities", "brokeragent", "cmd", "internal/inspect", "metastore", "planner", "worker", "workflows"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, code := range codesIn(file) {
				found[code] = path
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for code, path := range found {
		if _, ok := Codes[code]; !ok {
			t.Errorf("%s gives the code %q: explain it in codes.go and in docs/operations.md", path, code)
		}
	}
	for code := range Codes {
		if found[code] == "" {
			t.Errorf("%q is explained, and nothing gives it", code)
		}
	}
}

func codesIn(file *ast.File) []string {
	var codes []string
	text := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		if s, err := strconv.Unquote(literal.Value); err == nil && isCode.MatchString(s) {
			codes = append(codes, s)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(name.Name, "Code") && i < len(n.Values) {
					text(n.Values[i])
				}
			}
		case *ast.CallExpr:
			if at, ok := givers[called(n.Fun)]; ok && at < len(n.Args) {
				text(n.Args[at])
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Blocked" || key.Name == "Code") {
				text(n.Value)
			}
		}
		return true
	})
	return codes
}

func called(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// The runbook has a heading for each code, and none for a code that is no longer given.
func TestEveryCodeHasAHeadingInTheRunbook(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var headed []string
	for line := range strings.Lines(string(page)) {
		if code, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok && isCode.MatchString(code) {
			if slices.Contains(headed, code) {
				t.Errorf("%s has two headings", code)
			}
			headed = append(headed, code)
			if _, known := Codes[code]; !known {
				t.Errorf("docs/operations.md has a heading for %q, which is no code", code)
			}
		}
	}
	for code := range Codes {
		if !slices.Contains(headed, code) {
			t.Errorf("docs/operations.md has no heading `### %s`: symptom, what it means, what to do", code)
		}
	}
}

func TestExplanationsAreSentences(t *testing.T) {
	for code, e := range Codes {
		for _, s := range []string{e.Means, e.Unblock} {
			if !strings.HasSuffix(s, ".") || strings.Contains(s, "\n") {
				t.Errorf("%s: %q is not one sentence", code, s)
			}
		}
		if filled := Unblock(code, Place{}) + Means(code, Place{}); strings.ContainsAny(filled, "{}") {
			t.Errorf("%s: %q names a place that nobody fills", code, filled)
		}
	}
	if got := Unblock("destination_unreachable", Place{Partition: "orders/3", From: "b1", To: "b2"}); got != "Start the agent of b2, or take the move back with `portage move cancel orders/3`." {
		t.Error(got)
	}
	if Means("no_such_code", Place{}) != "" || Unblock("", Place{}) != "" {
		t.Error("a code that is not known is explained")
	}
}
