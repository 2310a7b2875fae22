package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A program that starts "localcluster up --control" writes commands to its
// stdin and reads events from its stdout, one JSON object a line.
//
//	-> {"id":1,"command":"kill"}     SIGKILL the API server (and its etcd)
//	-> {"id":2,"command":"start"}    start it again: same data, same address
//	-> {"id":3,"command":"user","name":"alice","groups":["developers"]}
//	-> {"id":4,"command":"status"}
//	-> {"command":"stop"}            end everything; the answer is the exit status
//	<- {"event":"note","message":"..."}                      at any time
//	<- {"event":"ready", ...status...}                       once
//	<- {"event":"reply","id":2, ...status..., "error":""}    one per command
//	<- {"event":"reply","id":3,"content":"apiVersion: ..."}  a kubeconfig, for user
//	<- {"event":"failed","error":"..."}                      the last line, before exit status 1
//
// Commands are carried out one after the other. Two do not wait for a start that is
// under way, but end it: kill, and stop. The end of stdin means that the program is
// gone: the same as stop.
type command struct {
	ID      int    `json:"id"`
	Command string `json:"command"`
	user
}

// request is a command, where its answer goes, and what makes it pointless.
type request struct {
	command
	reply     func(event)
	overtaken <-chan struct{} // closed once a kill has come after it
}

// maxWaiting is how many commands may wait while one is carried out, which takes
// until the ready timeout at most.
const maxWaiting = 1000

type event struct {
	Event   string `json:"event"`
	ID      int    `json:"id,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
	Content string `json:"content,omitempty"` // of the user's kubeconfig, in a reply to "user"
	status
}

// program is the reporter for a program at the other end of a pipe.
type program struct {
	mu  *sync.Mutex // one line at a time
	out io.Writer
}

// send drops what cannot be written: then the program is gone, and the end of
// stdin says so.
func (p program) send(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = json.NewEncoder(p.out).Encode(e)
}

func (p program) note(text string) { p.send(event{Event: "note", Message: text}) }

func (p program) ready(s status) { p.send(event{Event: "ready", status: s}) }

// errProtocol is a program that does not keep to the protocol.
var errProtocol = errors.New("the commands make no sense")

// control runs the supervisor under the commands that arrive on stdin.
func control(ctx context.Context, opts options) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := program{mu: &sync.Mutex{}, out: os.Stdout}
	requests := make(chan request, maxWaiting)
	// Nobody waits for this goroutine: a read of stdin cannot be interrupted, so
	// it ends with the process, whose last act is the return from here.
	go func() { cancel(readCommands(os.Stdin, requests, out.send)) }()
	err := supervise(ctx, opts, out, requests)
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, errProtocol) {
		err = cause
	}
	if err != nil {
		out.send(event{Event: "failed", Error: err.Error()})
		return exitFailed
	}
	return 0
}

// readCommands hands over requests until the input ends or says stop. It never
// waits for anything but input: what it notices must not have to wait for a start.
func readCommands(in io.Reader, requests chan<- request, reply func(event)) error {
	lines := bufio.NewScanner(in)
	killed := make(chan struct{}) // by the next kill
	for lines.Scan() {
		r := request{reply: reply, overtaken: killed}
		if err := json.Unmarshal(lines.Bytes(), &r.command); err != nil {
			return fmt.Errorf("%w: reading %q: %w", errProtocol, lines.Text(), err)
		}
		switch r.Command {
		case "stop":
			return nil
		case "kill":
			close(killed)
			killed = make(chan struct{})
		}
		select {
		case requests <- r:
		default:
			return fmt.Errorf("%w: %d are waiting, which is the most, and %q came", errProtocol, maxWaiting, lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}
