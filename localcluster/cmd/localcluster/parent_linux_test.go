package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestMain also runs the processes of the test, depending on the name of the binary.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "go", "sh":
		// A parent that starts the cluster and waits to be killed.
		cmd := exec.Command(filepath.Join(filepath.Dir(os.Args[0]), "cluster"))
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		if err := cmd.Run(); err != nil {
			panic(err)
		}
		os.Exit(0)
	case "cluster":
		if err := endWithGoCommand(); err != nil {
			panic(err)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestClusterEndsOnlyWithGoCommand(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for parent, wantEnd := range map[string]bool{"go": true, "sh": false} {
		t.Run(parent, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{parent, "cluster"} {
				if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, parent))
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, writer, err := os.Pipe() // not cmd.StdoutPipe: Wait must not wait for the grandchild's output
			if err != nil {
				t.Fatal(err)
			}
			defer stdout.Close()
			cmd.Stdout = writer
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = writer.Close()
			output := bufio.NewReader(stdout)
			if line, err := output.ReadString('\n'); line != "ready\n" {
				t.Fatalf("the cluster's output is %q, %v", line, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			patience := 20 * time.Second
			if !wantEnd {
				patience = 300 * time.Millisecond // in which nothing must happen
			}
			if err := stdout.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			_, err = output.ReadByte() // EOF when all writers have closed it
			if ended := errors.Is(err, io.EOF); ended != wantEnd {
				t.Errorf("the cluster has ended: %v (%v), want %v", ended, err, wantEnd)
			}
			_ = stdin.Close() // ends the cluster in any case
			_ = cmd.Wait()
		})
	}
}
