package faults_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// docs/rules.md is what people read of the rules: it must stay true.
func TestTheTableOfRulesIsTrue(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, switches := readSource(t)
	listed := map[string]bool{} // "R7 metastore/claim_move.go"
	rows := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !regexp.MustCompile(`^ R\d+`).MatchString(cells[1]) {
			continue
		}
		rows++
		rule := strings.Fields(cells[1])[0]
		for _, file := range regexp.MustCompile("`([a-z/_]+\\.go)`").FindAllStringSubmatch(cells[3], -1) {
			if _, err := os.Stat(filepath.Join(root, file[1])); err != nil {
				t.Errorf("%s: %v", rule, err)
			}
			listed[rule+" "+file[1]] = true
		}
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[4], -1)
		if len(named) == 0 || !strings.Contains(cells[4], "twice") {
			t.Errorf("%s has no test that tells its story twice", rule)
		}
		for _, name := range named {
			if !tests[name[1]] {
				t.Errorf("%s: there is no %s", rule, name[1])
			}
		}
	}
	if rows == 0 {
		t.Fatal("the table was not found")
	}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(table), -1) {
		if !tests[name[1]] {
			t.Errorf("there is no %s", name[1])
		}
	}
	for name := range tests {
		if regexp.MustCompile(`^TestH[NM]\d`).MatchString(name) && !strings.Contains(string(table), "`"+name+"`") {
			t.Errorf("%s is not listed", name)
		}
	}
	for place := range switches {
		if !listed[place] {
			t.Errorf("%s has a switch that the table does not list", place)
		}
	}
}

// readSource finds the names of all tests, and which rules have a switch in which files.
func readSource(t *testing.T) (tests, switches map[string]bool) {
	t.Helper()
	tests, switches = map[string]bool{}, map[string]bool{}
	isTest := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	isSwitch := regexp.MustCompile(`faults\.Enforced\("(R\d+)"\)`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range isTest.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
			return nil
		}
		relative, err := filepath.Rel(root, path)
		for _, m := range isSwitch.FindAllSubmatch(text, -1) {
			switches[string(m[1])+" "+filepath.ToSlash(relative)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, switches
}
