package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadCommands(t *testing.T) {
	t.Parallel()
	requests := make(chan request, 2)
	in := strings.NewReader(`{"id":1,"command":"kill"}` + "\n" + `{"id":2,"command":"user","name":"a","groups":["g"]}` + "\nnonsense\n")
	err := readCommands(in, requests, nil)
	if !errors.Is(err, errProtocol) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v, want an error with the line", err)
	}
	<-requests
	want := command{ID: 2, Command: "user", user: user{Name: "a", Groups: []string{"g"}}}
	if got := (<-requests).command; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReadCommandsNeverBlocks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		last string
		want error
	}{
		"end of input":      {"", nil},
		"stop":              {`{"command":"stop"}`, nil},
		"too many commands": {`{"id":99,"command":"status"}`, errProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan request, 3) // never read
			var in strings.Builder
			for i := range cap(requests) {
				fmt.Fprintf(&in, `{"id":%d,"command":"status"}`+"\n", i)
			}
			in.WriteString(test.last)
			if err := readCommands(strings.NewReader(in.String()), requests, nil); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestKillCancelsEarlierCommands(t *testing.T) {
	t.Parallel()
	requests := make(chan request, 9)
	in, program := io.Pipe()
	done := make(chan error)
	go func() { done <- readCommands(in, requests, nil) }() // received below
	send := func(line string) request {
		if _, err := io.WriteString(program, line+"\n"); err != nil {
			t.Fatal(err)
		}
		return <-requests
	}
	before := send(`{"command":"start"}`)
	if isClosed(before.cancelled) {
		t.Error("cancelled without a kill")
	}
	send(`{"command":"kill"}`)
	after := send(`{"command":"start"}`)
	if !isClosed(before.cancelled) || isClosed(after.cancelled) {
		t.Errorf("cancelled: %v before the kill, %v after it; want only the one before", isClosed(before.cancelled), isClosed(after.cancelled))
	}
	_ = program.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
