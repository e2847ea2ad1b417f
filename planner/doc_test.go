package planner

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestThePlannerKnowsNoNetworkDatabaseOrTemporal(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			path, _ := strconv.Unquote(imported.Path.Value)
			if path == "net" || path == "os" || path == "math/rand/v2" || strings.HasPrefix(path, "net/") || strings.HasPrefix(path, "database/") ||
				(strings.Contains(path, ".") && !strings.HasPrefix(path, "portage/")) || (strings.HasPrefix(path, "portage/") && path != "portage/internal/units") {
				t.Errorf("%s imports %s", e.Name(), path)
			}
		}
	}
}
