// Package v1alpha1 is the Go form of the API group chaos.evenkeel.dev/v1alpha1. The YAML
// form, which the API server validates by, is ../../config/crd.yaml.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxVictims is the most Pods that one round ends, whatever the percentage, so that a
// round takes seconds, and what the status says about it stays a small object.
const MaxVictims = 100

// PodTerminator ends a percentage of the Pods that it selects in its own namespace, every
// period, so that their owners show whether they heal.
type PodTerminator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PodTerminatorSpec   `json:"spec"`
	Status PodTerminatorStatus `json:"status,omitzero"`
}

// PodTerminatorSpec says which Pods are ended, how many, and when.
type PodTerminatorSpec struct {
	// Selector selects Pods by their labels. Required, and it must name something: a
	// selector that selects every Pod is refused.
	Selector metav1.LabelSelector `json:"selector"`
	// Percent of the selected Pods that are alive is ended in a round, rounded up, but
	// never more than MaxVictims. From 0 to 100.
	Percent int32 `json:"percent"`
	// Period is the time between the beginnings of two rounds; the first begins at once.
	// Rounds that were missed, because no operator ran, are not made up for. At least 1 s.
	Period metav1.Duration `json:"period"`
	// MinAlive keeps a round from ending a Pod when that would leave fewer than so many of
	// the selected Pods alive, by a count that is taken right before. What others end
	// between the count and the deletion is not seen. Default 0.
	MinAlive int32 `json:"minAlive,omitempty"`
	// DryRun only marks the Pods that would be ended, with the annotation
	// chaos.evenkeel.dev/victim-of, and names them in the status. Default false.
	DryRun bool `json:"dryRun,omitempty"`
}

// PodTerminatorStatus says what was done. The fields that a round can clear have no
// omitempty: in a merge patch their null removes the old value.
type PodTerminatorStatus struct {
	// ObservedGeneration is the generation of the spec that the rest is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has one condition, Ready: the spec makes sense and rounds take place.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Rounds is how many rounds have ended.
	Rounds int64 `json:"rounds"`
	// LastRun is when the last round began, or was taken up again after an interruption of
	// more than a period. NextRun is when the next one is due.
	LastRun *metav1.MicroTime `json:"lastRun"`
	NextRun *metav1.MicroTime `json:"nextRun"`

	// TerminatedTotal is how many Pods were ended, in all rounds. Those that were chosen and
	// are gone before their deletion is sent count as well: after a crash nobody can tell
	// whether it was the operator that ended them.
	TerminatedTotal int64 `json:"terminatedTotal"`
	// LastTerminated are the Pods that the last round ended.
	LastTerminated []PodReference `json:"lastTerminated"`
	// WouldTerminate are the Pods that the last round would have ended, had it not been
	// a dry run.
	WouldTerminate []PodReference `json:"wouldTerminate"`

	// Plan is the round that is under way. It is written before the first Pod is touched
	// and removed after the last one.
	Plan *Plan `json:"plan"`
	// Marked are the Pods that may carry this PodTerminator's mark. A Pod is written down
	// here before it is marked, so that a crash makes no mark forgotten. When two operators
	// work at the same time, one may still mark what the other has cleaned up.
	Marked []PodReference `json:"marked"`
}

// Plan is what a round is going to do.
type Plan struct {
	// DryRun says that the victims are only marked.
	DryRun bool `json:"dryRun,omitempty"`
	// Victims are the Pods that were chosen.
	Victims []PodReference `json:"victims"`
}

// PodReference names one incarnation of a Pod in the namespace of the PodTerminator.
type PodReference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// PodTerminatorList is a list of PodTerminators.
type PodTerminatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PodTerminator `json:"items"`
}
