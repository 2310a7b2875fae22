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

// command is one line of input for "localcluster up --control". A program that starts it writes commands to its stdin
// and reads events from its stdout, one JSON object per line.
//
//	-> {"id":1,"command":"kill"}     SIGKILL the API server (and its etcd)
//	-> {"id":2,"command":"start"}    start it again: same data, same address
//	-> {"id":3,"command":"user","name":"alice","groups":["developers"]}
//	-> {"id":4,"command":"compact"}  remove old versions from etcd
//	-> {"id":5,"command":"status"}
//	-> {"command":"stop"}            end everything; the exit status is the reply
//	<- {"event":"note","message":"..."}                      at any time
//	<- {"event":"ready", ...status...}                       once
//	<- {"event":"reply","id":2, ...status..., "error":""}    one per command
//	<- {"event":"reply","id":3,"content":"apiVersion: ..."}  a kubeconfig, for user
//	<- {"event":"failed","error":"..."}                      the last line, before exit status 1
//
// Commands run one after the other, with two exceptions: kill and stop cancel a running start. The end of stdin means
// that the program has ended. It has the same effect as stop.
type command struct {
	ID      int    `json:"id"`
	Command string `json:"command"`
	user
}

// request is a command with its reply function and its cancellation by a later kill.
type request struct {
	command
	reply     func(event)
	cancelled <-chan struct{} // closed when a later kill command arrives
}

// maxWaiting is the maximum number of commands that wait while another one runs, which takes at most the ready timeout.
const maxWaiting = 1000

type event struct {
	Event   string `json:"event"`
	ID      int    `json:"id,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
	Content string `json:"content,omitempty"` // the user's kubeconfig, in the reply to "user"
	status
}

// program is the reporter for a program that reads events from a pipe.
type program struct {
	mu  *sync.Mutex // one line at a time
	out io.Writer
}

// send ignores write errors: the program has ended then, and so does stdin.
func (p program) send(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = json.NewEncoder(p.out).Encode(e)
}

func (p program) note(text string) { p.send(event{Event: "note", Message: text}) }

func (p program) ready(s status) { p.send(event{Event: "ready", status: s}) }

// errProtocol is returned if the program violates the protocol.
var errProtocol = errors.New("invalid commands")

// control runs the supervisor with the commands that arrive on stdin.
func control(ctx context.Context, opts options) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := program{mu: &sync.Mutex{}, out: os.Stdout}
	requests := make(chan request, maxWaiting)
	// This goroutine is not waited for: a read of stdin cannot be interrupted, so it ends with the process, which exits
	// after this function returns.
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

// readCommands passes on requests until the input ends or contains stop. It must never block on anything but input: it
// must detect a kill, a stop and the end of stdin during a start.
func readCommands(in io.Reader, requests chan<- request, reply func(event)) error {
	lines := bufio.NewScanner(in)
	killed := make(chan struct{}) // closed by the next kill
	for lines.Scan() {
		r := request{reply: reply, cancelled: killed}
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
			return fmt.Errorf("%w: %q arrived while %d are waiting, which is the maximum", errProtocol, lines.Text(),
				maxWaiting)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}
