package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report describes what happened, for the log of a failed test.
func (c *Cluster) report(programs []*program) string {
	var b strings.Builder
	fmt.Fprintf(&b, "simulation: the cluster at %s, the latest writes and failed requests:\n%s", clock(time.Now()),
		c.log.last(40))
	if events, err := c.events(); err == nil && len(events) > 0 {
		b.WriteString("Events:\n")
		for _, e := range events {
			fmt.Fprintf(&b, "%s  %s %s/%s: %s\n", clock(e.created), e.object.Kind, e.object.Namespace, e.object.Name,
				e.text)
		}
	}
	for _, p := range programs {
		if p.controller == nil {
			continue
		}
		if err := p.controller.Ready(); err != nil {
			fmt.Fprintf(&b, "%s is not ready: %v\n", p.name, err)
		}
		b.WriteString(p.runs(20))
	}
	return b.String()
}

// allRuns describes the latest runs of all controllers. It may be called from outside of the bubble.
func (c *Cluster) allRuns() string {
	var b strings.Builder
	for _, p := range c.running() {
		if p.controller != nil {
			b.WriteString(p.runs(5))
		}
	}
	return b.String()
}

// runs describes the latest runs of a controller.
func (p *program) runs(limit int) string {
	runs := p.controller.RecentRuns() // latest first
	runs = runs[:min(len(runs), limit)]
	slices.Reverse(runs)
	var b strings.Builder
	if len(runs) == 0 {
		return fmt.Sprintf("%s has not run a handler\n", p.name)
	}
	fmt.Fprintf(&b, "the latest runs of %s:\n", p.name)
	for _, run := range runs {
		fmt.Fprintf(&b, "%s  %s\n", clock(run.Started), run)
	}
	return b.String()
}
