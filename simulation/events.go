package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Events returns the Events of all objects with the key "namespace/name", as "Warning Invalid: the image is empty (2
// times)", in the order of their creation.
func (c *Cluster) Events(key string) []string {
	c.tb.Helper()
	k := c.key(key)
	all, err := c.events()
	if err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
	var events []string
	for _, e := range all {
		if e.object.Name == k.Name && e.object.Namespace == k.Namespace {
			events = append(events, e.text)
		}
	}
	return events
}

// event is an Event as text.
type event struct {
	created time.Time
	object  corev1.ObjectReference
	text    string
}

// events returns the Events of both API groups: each is in both.
func (c *Cluster) events() ([]event, error) {
	stored, err := client.All[*corev1.Event](c.ctx(), c.client, kube.Selection{})
	if err != nil {
		return nil, err
	}
	var events []event
	for _, e := range stored {
		count := e.Count
		if e.Series != nil {
			count = max(count, e.Series.Count)
		}
		events = append(events,
			event{e.CreationTimestamp.Time, e.InvolvedObject, eventText(e.Type, e.Reason, e.Message, count)})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.created.Compare(b.created) })
	return events, nil
}

func eventText(kind, reason, message string, count int32) string {
	text := fmt.Sprintf("%s %s: %s", kind, reason, message)
	if count > 1 {
		text += fmt.Sprintf(" (%d times)", count)
	}
	return text
}
