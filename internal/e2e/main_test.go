package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"portage/internal/faults/faultctl"
)

// binary is the portage program under test: with crash points and the race detector.
var binary string

// all reports whether every cell and every long test runs.
var all = os.Getenv("PORTAGE_TEST") == "all"

// askedForCells reports whether the command line names subtests: then they run, whether they are among the default ones
// or not.
func askedForCells() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "/") }

// parallel is how many fleets run at once.
const parallel = 4

func TestMain(m *testing.M) {
	flag.Parse()
	// Fleets mostly wait (for leases, heartbeats, restarts), so more of them fit than there are cores.
	_ = flag.Set("test.parallel", strconv.Itoa(parallel))
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "portage-e2e")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "portage")
	build := exec.Command("go", "build", "-race", "-tags", "portage_faults", "-o", binary, "portage/cmd/portage")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	defer func() { err = errors.Join(err, rigs.close()) }()
	began := time.Now()
	code = m.Run()
	points, err := pointsInTheCode()
	if err != nil {
		return 1, err
	}
	missing, notRun := faultctl.Missing(points), matrix.notRun()
	text := matrix.text(time.Since(began)) + fmt.Sprintf("crash points reached and replies lost: %d of %d", len(points)-len(missing), len(points))
	if len(missing) > 0 {
		text += "; not reached: " + strings.Join(missing, ", ")
	}
	fmt.Println(text)
	// `go test` shows the output of a package that passes only with -v; who wants the report all the same names a file.
	if file := os.Getenv("PORTAGE_TEST_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			return 1, err
		}
	}
	whole := all && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if whole && len(missing) > 0 {
		return 1, errors.New("the full suite must reach every crash point and lose every reply: reach it, or take it out of the code")
	}
	if whole && len(notRun) > 0 {
		return 1, fmt.Errorf("the full suite must run every cell of the matrix; these did not: %s", strings.Join(notRun, ", "))
	}
	return code, nil
}

// notOfAMove are guarded writes and control calls that no participant of a move makes: operators and clients do, through
// their own tests.
var notOfAMove = []string{"SetDraining", "SetSetting", "CreateTopic", "DeleteTopic", "Contradict", "ReconcileRow", "ReconcileController",
	"ReplaceStorage", "PurgeTrash", "SetLimit", "Rows", "RemoveBroker", "PromoteCopy", "Retained", "HoldTrash", "PurgeQuarantine", "ExportQuarantine",
	"AddPartitions", "RecordOrder", "SavePlan", "ApprovePlan", "RecordActions", "SampleLoads", "BeginDrain", "SetCapacity", "LimitPlan"}

var (
	pointCall   = regexp.MustCompile(`faults\.Point\("([^"]+)"\)`)
	controlCall = regexp.MustCompile(`(?:\](?:\(ctx, c,)|c\.do\(ctx,) "([A-Z]\w+)"`)
	guardedCall = regexp.MustCompile(`\.guarded\(ctx, "([^"]+)"`)
)

// pointsInTheCode lists every crash point and every reply that can be lost, as the product's sources name them.
func pointsInTheCode() ([]string, error) {
	var points []string
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".git") || d.Name() == "tools") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range pointCall.FindAllSubmatch(source, -1) {
			points = append(points, "point "+string(m[1]))
		}
		for _, m := range guardedCall.FindAllSubmatch(source, -1) {
			if name := string(m[1]); !slices.Contains(notOfAMove, name) {
				points = append(points, "point "+name+".before", "point "+name+".after", "lost "+name)
			}
		}
		for _, m := range controlCall.FindAllSubmatch(source, -1) {
			if name := string(m[1]); !slices.Contains(notOfAMove, name) {
				points = append(points, "lost "+name)
			}
		}
		return nil
	})
	sort.Strings(points)
	return slices.Compact(points), err
}
