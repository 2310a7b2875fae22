package usercode_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

type endless struct{}

func (endless) Error() string   { panic("must not be called") }
func (e endless) Unwrap() error { return e }

type endlessListError struct{}

func (endlessListError) Error() string     { return "list" }
func (e endlessListError) Unwrap() []error { return []error{e} }

type unreadable struct{}

func (unreadable) Error() string { panic("unreadable") }

func TestErrorReturnsReadableErrorsUnchanged(t *testing.T) {
	t.Parallel()
	var many []error
	for range 5000 {
		many = append(many, io.EOF)
	}
	for name, err := range map[string]error{
		"nil": nil, "plain": io.EOF, "wrapped": fmt.Errorf("read: %w", io.EOF),
		"joined": errors.Join(io.EOF, nil, fs.ErrNotExist), "limit": errors.New(strings.Repeat("x", usercode.MaxText)),
	} {
		if got := usercode.Error(err); got != err { //nolint:errorlint // the identical value
			t.Errorf("%s: got another error: %v", name, got)
		}
	}
	if err := usercode.Error(errors.Join(many...)); !errors.Is(err, io.EOF) {
		t.Errorf("of 5,000 joined errors, EOF is not found in %.100q", err)
	}
}

func TestErrorReplacesUnreadableErrors(t *testing.T) {
	t.Parallel()
	deep := io.EOF
	for range 1100 {
		deep = fmt.Errorf("%w", deep)
	}
	for name, test := range map[string]struct {
		err  error
		text string
	}{
		"wraps itself":     {endless{}, "usercode_test.endless that wraps itself"},
		"lists itself":     {endlessListError{}, "usercode_test.endlessListError that wraps itself"},
		"wraps an endless": {fmt.Errorf("x: %w", endlessListError{}), "*fmt.wrapError that wraps itself, or more than 1000 others"},
		"too deep":         {deep, "more than 1000 others"},
		"unreadable":       {unreadable{}, "usercode_test.unreadable, whose Error method panicked: unreadable"},
		"nil pointer":      {(*fs.PathError)(nil), "a nil *fs.PathError was returned as an error"},
	} {
		got := usercode.Error(test.err)
		if got == nil || !strings.Contains(got.Error(), test.text) || usercode.Text(test.err) != got.Error() {
			t.Errorf("%s: %v, Text %q, want %q", name, got, usercode.Text(test.err), test.text)
		}
		if !usercode.Sound(got) {
			t.Errorf("%s: the replacement is not sound", name)
		}
	}
	if err := usercode.Error(fmt.Errorf("%s: %w", strings.Repeat("x", 1<<20), io.EOF)); !errors.Is(err, io.EOF) || len(err.Error()) > usercode.MaxText {
		t.Errorf("a long error has %d B, and must still wrap EOF", len(err.Error()))
	}
}

func TestShortenKeepsBothEnds(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{64, 65, 66, 67, 100} {
		text := "begin " + strings.Repeat("ä€", 500) + " end"
		got := usercode.ShortenTo(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || !strings.HasPrefix(got, "begin ") || !strings.HasSuffix(got, " end") || !strings.Contains(got, "(2510 bytes in all)") {
			t.Errorf("at most %d: %d B, %q", limit, len(got), got)
		}
	}
}

func TestGuardLogsAStackOnce(t *testing.T) {
	t.Parallel()
	var logs testlog.Buffer
	guard := usercode.NewGuard(slog.New(slog.NewTextHandler(&logs, nil)))
	for range 3 {
		if got := usercode.Value(guard, "Predicate", true, func() bool { panic("no") }); !got {
			t.Error("a panic returned another value than the one for it")
		}
	}
	if got := usercode.Value(guard, "Predicate", true, func() bool { return false }); got {
		t.Error("the value of a function that returned was lost")
	}
	if err := guard.Try("Run", func() error { runtime.Goexit(); return nil }); err == nil || !strings.Contains(err.Error(), "Run: it called runtime.Goexit") {
		t.Errorf("Try returned %v for runtime.Goexit", err)
	}
	if err := guard.Try("Run", func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // the identical value
		t.Errorf("Try returned %v, want the error of the function", err)
	}
	failed := guard.Call("Group", func() { panic(endless{}) }, func() []any { return []any{"key", "ns/a"} })
	if failed == nil || failed.Unwrap() != nil || !strings.Contains(failed.Error(), "Group panicked: an error of type") {
		t.Errorf("Call returned %v", failed)
	}
	if got := logs.String(); strings.Count(got, "stack=") != 3 || strings.Count(got, "\n") != 3 || !strings.Contains(got, "key=ns/a") {
		t.Errorf("logged %s", got)
	}
}

func BenchmarkGuard(b *testing.B) {
	guard := usercode.NewGuard(slog.New(slog.DiscardHandler))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if usercode.Value(guard, "Predicate", true, func() bool { n++; return n%2 == 0 }) {
			n++
		}
	}
}
