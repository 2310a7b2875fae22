// Package leader lets one process out of several work at a time, by an election on a
// Lease of the API server.
//
// An Elector is what a controller's LeaderElector field takes. It can also stand around
// a group of controllers, or around anything else: Run takes a function. Readiness probes of
// such a group ask ReadyWith.
//
// # Permissions
//
// In the lease's namespace: get, create and update of leases in coordination.k8s.io.
//
// # Clocks
//
// The holder of a lease and those who wait for it never compare their clocks: each
// measures with its own how long ago it last renewed the lease, or saw it renewed. It
// does not matter how far clocks are apart, only how much faster one runs than another.
// The holder stops after RenewDeadline, the others wait for LeaseDuration; the difference
// (5 s out of 15 s by default) is what a clock's rate, a pause of the process between a
// last check and a write, and a write on its way to the API server may use up.
//
// The measuring is done with the operating system's monotonic clock, so that setting the time of
// day does not disturb it, and a process that is stopped and continued finds that its time has
// passed. On Linux, time for which the machine was suspended counts as well (CLOCK_BOOTTIME). On
// other systems it may not: do not suspend machines that run a leader there. A hypervisor that pauses a virtual
// machine may stop both clocks.
//
// # Writes
//
// The context that work gets carries the term of leadership. Clients of a kube.Cluster send no write
// under it, or under a context derived from it (also by context.WithoutCancel), after the lease was
// lost or released. Each write is checked against the deadline when it is made and when its bytes
// are handed to the operating system. When the rest.Config of the Cluster has a Transport of its own, the
// second check needs an *http.Transport without DialTLS and DialTLSContext; through others, writes are
// checked when they are made, and cancelled at the loss. Writes with other contexts, such as
// context.Background(), are not checked.
//
// # A missing Lease
//
// A candidate creates a Lease that does not exist with the holder no-leader-yet, and waits, as the
// others do, until it has expired, one LeaseDuration later: somebody may have deleted the Lease while
// another process leads. To have a leader at once after the first installation, create a Lease
// with an empty spec beside the Deployment. Do not let a tool create it again when it was deleted:
// a Lease without a holder is taken at once.
package leader
