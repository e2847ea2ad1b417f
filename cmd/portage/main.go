// Command portage moves partitions between message brokers as durable Temporal workflows. One binary: the agent beside
// each broker, the worker, and the operator's commands.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	_ "time/tzdata" // the zones of windows, also where the machine has none

	"github.com/alecthomas/kong"

	"portage/internal/operate"
	"portage/metastore"
)

// Set by the build.
var (
	version = "dev"
	commit  = ""
)

// Exit codes, documented in --help and docs/cli.md.
const (
	exitFailed      = 1 // what was asked for was refused or failed; the sentence on stderr says why
	exitUsage       = 2 // the command line is wrong
	exitUnreachable = 3 // Temporal, the metastore or an agent does not answer
	exitCancelled   = 4 // the move was cancelled
	exitInterrupted = 130
)

type cli struct {
	Agent      agentCmd      `cmd:"" help:"Run the agent of one broker (a native broker with its control API)."`
	Worker     workerCmd     `cmd:"" help:"Run a worker of the fleet."`
	Demo       demoCmd       `cmd:"" help:"Run a whole fleet on this machine and move partitions under load."`
	Move       moveCmd       `cmd:"" help:"Start, watch and cancel moves of partitions."`
	Swap       swapCmd       `cmd:"" help:"Let two partitions of two brokers change places, both at once or neither."`
	Promote    promoteCmd    `cmd:"" help:"Give a partition whose owner or its disk is gone to a copy that is left, accepting the loss."`
	Trash      trashCmd      `cmd:"" help:"Look after the former copies that brokers keep."`
	Quarantine quarantineCmd `cmd:"" help:"Look after the former copies that hold records their owner does not have."`
	Plan       planCmd       `cmd:"" help:"Say what should move where, and why; changes nothing. Works on a snapshot file without any fleet."`
	Cluster    clusterCmd    `cmd:"" help:"Look at the fleet, pause it, and take brokers out of it."`
	Rebalance  rebalanceCmd  `cmd:"" help:"Plan what should move in the fleet, and move it."`
	Explain    explainCmd    `cmd:"" help:"Say where a partition is, where it should be and why, and what blocks it."`
	Config     configCmd     `cmd:"" help:"Show and change settings of the fleet."`
	Reconcile  reconcileCmd  `cmd:"" help:"Put the metastore right after it went back in time; says what it would do unless --yes."`
	Broker     brokerCmd     `cmd:"" help:"Look after single brokers."`
	Doctor     doctorCmd     `cmd:"" help:"Check everything a fleet rests on: Temporal, Postgres, agents, disks, moves."`

	Log     logFlags         `embed:"" prefix:"log-"`
	Version kong.VersionFlag `help:"Print the version."`
}

const description = `Portage moves partitions between message brokers as durable Temporal workflows.

Every flag can also be set in the environment (--dsn is PORTAGE_DSN) or in a JSON file named by
--config. Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 3 something does not
answer, 4 the move was cancelled, 130 interrupted.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	var c struct {
		cli
		Config kong.ConfigFlag `help:"A JSON file with flags, as {\"dsn\": \"postgres://...\"}." type:"path"`
	}
	parser, err := kong.New(&c, kong.Name("portage"), kong.Description(description), kong.UsageOnError(), kong.DefaultEnvars("PORTAGE"),
		kong.Vars{"version": versionText()}, kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Configuration(kong.JSON))
	if err != nil {
		fmt.Fprintln(os.Stderr, "portage:", err)
		return exitUsage
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "portage:", err)
		return exitUsage
	}
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(&c.cli)
	err = command.Run()
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || exitOf(err) == exitUnreachable):
		return exitInterrupted // what did not answer had no time to
	}
	complain(os.Stderr, err, asksForJSON(command))
	return exitOf(err)
}

// asksForJSON reports whether the command prints JSON.
func asksForJSON(command *kong.Context) bool {
	for _, flag := range command.Flags() {
		if flag.Name == "json" {
			return flag.Target.Kind() == reflect.Bool && flag.Target.Bool()
		}
	}
	return false
}

// complain says why something was not done: a sentence with its stable code, or the same as JSON.
func complain(to io.Writer, err error, asJSON bool) {
	code, sentence := codeOf(err), err.Error()
	if refused, ok := metastore.RefusedWith(err); ok {
		sentence = strings.Replace(sentence, refused.Error(), refused.Reason, 1) // which write refused is nobody's business here
	}
	switch {
	case asJSON:
		_ = json.NewEncoder(to).Encode(map[string]any{"error": map[string]string{"code": code, "message": sentence}})
	case code == operate.CodeFailed, code == codeUsage, strings.Contains(sentence, "("+code+")"):
		fmt.Fprintln(to, "portage:", sentence)
	default:
		fmt.Fprintf(to, "portage: %s (%s)\n", sentence, code)
	}
}

// codeUsage is the code of a command line that is wrong.
const codeUsage = "usage"

// codeOf is the stable code of an error; docs/http.md lists them.
func codeOf(err error) string {
	var coded *exitError
	var order *operate.Error
	refused, isRefused := metastore.RefusedWith(err)
	switch {
	case errors.As(err, &order) && order.Code != "":
		return order.Code
	case isRefused && refused.Code != "":
		return refused.Code
	case errors.As(err, &coded) && coded.code == exitUsage:
		return codeUsage
	case errors.As(err, &coded) && coded.code == exitUnreachable:
		return codeUnreachable
	case errors.As(err, &coded) && coded.code == exitCancelled:
		return operate.CodeCancelled
	}
	return operate.CodeFailed
}

// codeUnreachable is the code of something that does not answer and has none of its own.
const codeUnreachable = "unreachable"

// exitOf is the exit code of an error.
func exitOf(err error) int {
	var coded *exitError
	var order *operate.Error
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &order) && order.Kind == operate.Unreachable, metastore.IsUnknown(err):
		return exitUnreachable
	case errors.As(err, &order) && order.Kind == operate.Cancelled:
		return exitCancelled
	}
	return exitFailed
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func unreachable(err error) error { return &exitError{exitUnreachable, err} }

func versionText() string {
	if commit == "" {
		return version
	}
	return version + " (" + commit + ")"
}
