package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/subprocess"
)

// quitTime is how long a process may take to end by itself once its input has ended.
const quitTime = 3 * time.Second

// process is a started program that is spoken to in lines. It ends when its standard input
// does, so it does not outlive this process either.
type process struct {
	name   string
	stop   context.CancelFunc // kills it
	input  io.WriteCloser
	lines  chan string // closed at the end of its output
	ended  chan struct{}
	stderr *subprocess.Tail
}

func startProcess(ctx context.Context, name, path string, variables []string, args ...string) (*process, error) {
	ctx, stop := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(subprocess.Environment(), variables...)
	p := &process{
		name: name, stop: stop, lines: make(chan string, 1), ended: make(chan struct{}),
		stderr: &subprocess.Tail{},
	}
	command.Stderr = p.stderr
	input, err := command.StdinPipe()
	if err != nil {
		stop()
		return nil, err
	}
	p.input = input
	output, err := command.StdoutPipe()
	if err != nil {
		stop()
		return nil, err
	}
	if err := command.Start(); err != nil {
		stop()
		return nil, err
	}
	go func() { // end waits for it
		defer close(p.ended)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			p.lines <- lines.Text()
		}
		close(p.lines)
		_ = command.Wait() // what went wrong is on its standard error
	}()
	return p, nil
}

// read reads one line of JSON into answer.
func (p *process) read(ctx context.Context, answer any, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return fmt.Errorf("%s ended: %s", p.name, p.stderr)
		}
		return json.Unmarshal([]byte(line), answer)
	case <-timer.C:
		return fmt.Errorf("%s gave no answer in %v: %s", p.name, timeout, p.stderr)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a command and reads the answer.
func (p *process) ask(ctx context.Context, command, answer any, timeout time.Duration) error {
	if err := p.tell(command); err != nil {
		return err
	}
	return p.read(ctx, answer, timeout)
}

func (p *process) tell(command any) error {
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := p.input.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s does not listen: %w: %s", p.name, err, p.stderr)
	}
	return nil
}

// end ends the process and waits for it.
func (p *process) end() {
	_ = p.input.Close() // it is to end either way
	timer := time.AfterFunc(quitTime, p.stop)
	for range p.lines {
		continue // the process must not block on its output
	}
	<-p.ended
	timer.Stop()
	p.stop()
}
