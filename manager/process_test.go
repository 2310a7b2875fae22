//go:build unix

package manager_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/manager"
)

// inProcess is set in the environment of a process that runs a manager: to "drains" or to "stuck".
const inProcess = "EVENKEEL_MANAGER_TEST"

// TestProgram is the program of the next test. In other processes it does nothing.
func TestProgram(t *testing.T) {
	t.Parallel()
	mode := os.Getenv(inProcess)
	if mode == "" {
		return
	}
	if mode == "hides" {
		logHiddenValues()
		os.Exit(0)
	}
	config := manager.Config{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
		Runnables: []manager.Runnable{{
			Name: "websites", Runner: manager.RunFunc(func(ctx context.Context) error {
				if mode == "fails" {
					return errors.New("the registry is gone")
				}
				fmt.Fprintln(os.Stderr, "working")
				<-ctx.Done()
				if mode != "drains" {
					select {}
				}
				return nil
			}),
		}},
	}
	if mode == "late" {
		config.ShutdownTimeout = time.Second
	}
	m, err := manager.New(config)
	if err != nil {
		t.Fatal(err)
	}
	os.Exit(manager.ExitStatus(m.Run(t.Context())))
}

// logHiddenValues logs a Secret, and an attribute that the user hides.
func logHiddenValues() {
	options := manager.Options{LogHide: []string{"dsn"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"password": []byte("hunter2")}}
	options.Logger().Warn("cannot connect", "secret", secret, "data", secret.Data, "dsn", "postgres://shop:hunter2@db/shop")
}

// The exit status and the last log line of a process say how it ended.
func TestSignalsOfProcess(t *testing.T) {
	t.Parallel()
	modes := []string{"drains", "fails", "late", "stuck"}
	last := make([]string, len(modes))
	t.Run("modes", func(t *testing.T) {
		for i, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				status, line := runProgram(t, mode)
				want := map[string]int{"drains": 0, "fails": 1, "late": 1, "stuck": 128 + int(syscall.SIGTERM)}[mode]
				if status != want {
					t.Errorf("exit status %d, want %d; last line: %s", status, want, line)
				}
				last[i] = line
			})
		}
	})
	golden(t, "exit", strings.Join(last, "\n"))
}

// The values of Secrets and of attributes that the user names are not in the log.
func TestHiddenValuesOfProcess(t *testing.T) {
	t.Parallel()
	_, line := runProgram(t, "hides")
	_, line, _ = strings.Cut(line, " ") // without the time
	golden(t, "hidden", line)
}

// runProgram runs TestProgram until it exits, and returns its status and its last line.
func runProgram(t *testing.T, mode string) (status int, last string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), inProcess+"="+mode)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); last = lines.Text() {
		if line := lines.Text(); line == "working" || mode == "stuck" && strings.Contains(line, "manager stopping") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), last
}
