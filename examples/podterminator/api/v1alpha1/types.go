// Package v1alpha1 has the Go types of the API group chaos.evenkeel.dev/v1alpha1. ../../config/crd.yaml has the schema
// with which the API server validates.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxVictims is the maximum number of Pods that a round ends, regardless of the percentage, so that a round takes
// seconds and the status stays small.
const MaxVictims = 100

// PodTerminator ends a percentage of the selected Pods in its own namespace, once per period, to test whether their
// owners replace them.
type PodTerminator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PodTerminatorSpec   `json:"spec"`
	Status PodTerminatorStatus `json:"status,omitzero"`
}

// PodTerminatorSpec is the desired state of a PodTerminator.
type PodTerminatorSpec struct {
	// Selector selects Pods by their labels. Required. It must not be empty: a selector that selects every Pod is
	// rejected.
	Selector metav1.LabelSelector `json:"selector"`
	// Percent of the selected Pods that are alive is ended in a round, rounded up, but at most MaxVictims. From 0 to
	// 100.
	Percent int32 `json:"percent"`
	// Period is the time between the starts of two rounds. The first one starts at once. Rounds that were missed
	// because no operator ran are not repeated. At least 1 s.
	Period metav1.Duration `json:"period"`
	// MinAlive is the minimum number of selected Pods that must stay alive, by a count that is taken right before. Pods
	// that other clients end between the count and the deletion are not included. Default 0.
	MinAlive int32 `json:"minAlive,omitempty"`
	// DryRun only marks the chosen Pods with the annotation chaos.evenkeel.dev/victim-of, and lists them in the status.
	// Default false.
	DryRun bool `json:"dryRun,omitempty"`
}

// PodTerminatorStatus is the observed state. Fields that a round can clear have no omitempty: in a merge patch their
// null removes the old value.
type PodTerminatorStatus struct {
	// ObservedGeneration is the generation of the spec that the other fields refer to.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has one condition, Ready: the spec is valid and rounds take place.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Rounds is the number of completed rounds.
	Rounds int64 `json:"rounds"`
	// LastRun is the time when the last round began, or was resumed after an interruption of more than a period.
	// NextRun is the time when the next one is due.
	LastRun *metav1.MicroTime `json:"lastRun"`
	NextRun *metav1.MicroTime `json:"nextRun"`

	// TerminatedTotal is the number of Pods that were ended in all rounds. It includes Pods that were chosen but
	// disappeared before their deletion was sent, because after a crash it is unknown whether the operator ended them.
	TerminatedTotal int64 `json:"terminatedTotal"`
	// LastTerminated are the Pods that the last round ended.
	LastTerminated []PodReference `json:"lastTerminated"`
	// WouldTerminate are the Pods that the last round would have ended without a dry run.
	WouldTerminate []PodReference `json:"wouldTerminate"`

	// Plan is the current round. It is written before the first Pod is changed, and removed after the last one.
	Plan *Plan `json:"plan"`
	// Marked are the Pods that may have this PodTerminator's mark. A Pod is added here before it is marked, so that a
	// crash cannot leave an unknown mark. If two operators run at the same time, one may mark Pods that the other has
	// cleaned up.
	Marked []PodReference `json:"marked"`
}

// Plan is a planned round.
type Plan struct {
	// DryRun is true if the victims are only marked.
	DryRun bool `json:"dryRun,omitempty"`
	// Victims are the Pods that were chosen.
	Victims []PodReference `json:"victims"`
}

// PodReference identifies one incarnation of a Pod in the namespace of the PodTerminator.
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
