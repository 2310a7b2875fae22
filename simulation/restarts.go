package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// runProgram runs a program, and starts it again when it has ended.
func (t *trial) runProgram(name string) {
	for number := 0; t.ctx.Err() == nil; number++ {
		ctx, kill := context.WithCancel(t.ctx)
		i := &instance{
			trial: t, program: name, number: number, ctx: ctx, kill: kill,
			expired: map[schema.GroupResource]bool{},
		}
		t.mu.Lock()
		t.instances[name] = i
		t.mu.Unlock()
		config := t.cluster.RESTConfig(name)
		config.Transport = i
		err := t.runInstance(context.WithValue(ctx, instanceKey{}, i), name, config)
		kill()
		t.noteEnd(i, err)
		for t.plan.isDown(name) {
			_, stepped := t.user.progress()
			if !t.plan.isDown(name) {
				break
			}
			select {
			case <-stepped:
			case <-t.plan.healed:
			case <-t.ctx.Done():
				return
			}
		}
		select {
		case <-time.After(restartTime):
		case <-t.ctx.Done():
		}
	}
}

// runInstance runs a program until it returns, which it must do when its context ends.
func (t *trial) runInstance(ctx context.Context, name string, config *rest.Config) error {
	ended := make(chan error, 1)
	go func() { // waited for below
		ended <- t.cluster.runInstance(ctx, name, config, t.scenario.Programs[name])
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endTimeout):
		// The bubble cannot end, so that the test cannot end and print its log.
		panic(fmt.Sprintf("simulation: the program %s of Scenario.Programs has not returned %v after its context ended"+
			"\ngoroutines:\n\n%s", name, endTimeout, stacks()))
	}
}

// noteEnd records the end of an instance.
func (t *trial) noteEnd(i *instance, err error) {
	t.mu.Lock()
	known := t.outcome.watched[i.program]
	for _, resource := range i.watched() {
		if !slices.Contains(known, resource) {
			known = append(known, resource)
		}
	}
	slices.SortFunc(known, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	t.outcome.watched[i.program] = known
	t.mu.Unlock()
	if t.ctx.Err() != nil || i.isDead() {
		return
	}
	if err == nil {
		err = errors.New("it returned nil, although its context had not ended")
	}
	t.violate(violation{ruleEnded, i.program, fmt.Sprintf("%s ended: %v", i.program, err)})
}

// crashAll crashes all programs, which are then started again.
func (t *trial) crashAll() {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.instances))
	t.mu.Unlock()
	for _, i := range all {
		i.crash()
	}
}
