package main

import (
	"bufio"
	"context"
	"encoding/json"
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
//	<- {"event":"reply","id":3, ...status..., "error":""}    one per command
//	<- {"event":"failed","error":"..."}                      the last line, before exit status 1
//
// The end of stdin means that the program is gone: the same as stop.
type command struct {
	ID      int    `json:"id"`
	Command string `json:"command"`
	user
}

// request is a command and where its answer goes.
type request struct {
	command
	reply func(event)
}

type event struct {
	Event   string `json:"event"`
	ID      int    `json:"id,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
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

// control runs the supervisor under the commands that arrive on stdin.
func control(ctx context.Context, opts options) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := program{mu: &sync.Mutex{}, out: os.Stdout}
	requests := make(chan request)
	// Nobody waits for this goroutine: a read of stdin cannot be interrupted, so
	// it ends with the process, whose last act is the return from here.
	go func() {
		defer cancel()
		if err := readCommands(ctx, os.Stdin, requests, out.send); err != nil {
			out.note(err.Error())
		}
	}()
	if err := supervise(ctx, opts, out, requests); err != nil {
		out.send(event{Event: "failed", Error: err.Error()})
		return exitFailed
	}
	return 0
}

// readCommands hands over requests until the input ends or ctx does.
func readCommands(ctx context.Context, in io.Reader, requests chan<- request, reply func(event)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r := request{reply: reply}
		if err := json.Unmarshal(lines.Bytes(), &r.command); err != nil {
			return fmt.Errorf("reading the command %q: %w", lines.Text(), err)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading commands: %w", err)
	}
	return nil
}
