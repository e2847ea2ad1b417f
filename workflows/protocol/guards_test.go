package protocol

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	named     = regexp.MustCompile("`([^`]+)`")
	constant  = regexp.MustCompile(`\b(Code\w+)\s*=\s*"([a-z_]+)"`)
	gives     = regexp.MustCompile(`(?:Code:\s*|(?:object|refuse|refused)\()(?:\w+\.)?(?:(Code\w+)|"([a-z_]+)")`)
	testStart = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// docs/guards.md is what people read of the guards: every file it names gives the code, every test asks for it, and no refusal
// of these files is missing.
func TestTheTableOfGuardsIsTrue(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, "docs", "guards.md"))
	if err != nil {
		t.Fatal(err)
	}
	values, tests := map[string][]string{}, map[string]string{} // of constants; the text of each test
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(raw)
		for _, c := range constant.FindAllStringSubmatch(text, -1) {
			values[c[1]] = append(values[c[1]], c[2])
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, at := range testStart.FindAllStringSubmatchIndex(text, -1) {
			body, _, _ := strings.Cut(text[at[0]:], "\n}\n")
			tests[text[at[2]:at[3]]] = body
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	says := func(text, code string) bool {
		if strings.Contains(text, `"`+code+`"`) {
			return true
		}
		for name, all := range values {
			if slices.Contains(all, code) && regexp.MustCompile(`\b`+name+`\b`).MatchString(text) {
				return true
			}
		}
		return false
	}
	listed := map[string][]string{} // codes by file
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[3], "`") {
			continue
		}
		code := strings.Trim(cells[3], " `")
		if _, ok := Codes[code]; !ok {
			t.Errorf("%q is no code", code)
		}
		for _, file := range named.FindAllStringSubmatch(cells[4], -1) {
			text, err := os.ReadFile(filepath.Join(root, file[1]))
			if err != nil || !says(string(text), code) {
				t.Errorf("%s does not give %s (%v)", file[1], code, err)
			}
			listed[file[1]] = append(listed[file[1]], code)
		}
		asked := named.FindAllStringSubmatch(cells[5], -1)
		if len(asked) == 0 {
			t.Errorf("no test asks for %s of %s", code, cells[1])
		}
		for _, test := range asked {
			if !says(tests[test[1]], code) {
				t.Errorf("%s does not ask for %s", test[1], code)
			}
		}
	}
	if len(listed) == 0 {
		t.Fatal("the table was not found")
	}
	for file, codes := range listed {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue // told above
		}
		for _, given := range gives.FindAllStringSubmatch(string(text), -1) {
			possible := append([]string{given[2]}, values[given[1]]...)
			if !slices.ContainsFunc(possible, func(code string) bool { return slices.Contains(codes, code) }) {
				t.Errorf("%s refuses with %s%s, which the table does not list for it", file, given[1], given[2])
			}
		}
	}
}
