// Package leader lets one of several processes work at a time. They compete for a Lease of the API server.
//
// An Elector is a controller's LeaderElector. It can also run a group of controllers, or any other function, under one
// lease: pass a function to Run, and call ReadyWith in readiness probes.
//
// # Permissions
//
// get, create and update of leases (coordination.k8s.io) in the lease's namespace.
//
// # Clocks
//
// The holder of a lease and the candidates never compare their clocks. The holder measures how long ago it renewed the
// lease, and a candidate measures how long ago it saw the lease renewed, each with its own clock. Differences between
// the clocks do not matter; only differences in their rates do. The holder stops after RenewDeadline, and candidates
// wait for LeaseDuration. The difference (5 s of 15 s by default) is the margin for a clock's rate, for a pause of the
// process between the last check and a write, and for a write on its way to the API server.
//
// The clock is the monotonic clock of the operating system. Setting the time of day does not affect it, and a process
// that is stopped and continued detects that its lease has expired. On Linux, time for which the machine was suspended
// counts too (CLOCK_BOOTTIME). On other systems it may not count: do not suspend machines that run a leader there. A
// hypervisor that pauses a virtual machine may stop both clocks.
//
// # Guarantees
//
//   - work is not called before the lease is acquired, and never twice at once.
//   - The lease is held until work has returned or leadership is lost. Leadership is lost at the latest RenewDeadline
//     after the start of the last successful renewal, which is LeaseDuration minus RenewDeadline before another process
//     can acquire the lease. It is also lost as soon as a request shows that the lease has another holder or no holder,
//     or was deleted.
//   - A context that kube.UntilLeadershipLost derives from work's context is cancelled when leadership is lost, also
//     while work drains, and when work has returned.
//   - The lease is never written between a loss and the return of work.
//   - Everything that Elector.Run starts has ended when it returns.
//
// # Writes
//
// The context of work carries the term of leadership. After the lease was lost or released, clients of a kube.Cluster
// send no write with this context, or with a context derived from it (also by context.WithoutCancel). They check each
// write against the deadline when it is made, and again when its bytes are passed to the operating system. If the
// rest.Config of the Cluster has its own Transport, the second check needs an *http.Transport without DialTLS and
// DialTLSContext; with other transports, the loss cancels writes in flight. Writes with other contexts, such as
// context.Background(), are not checked.
//
// # Missing Lease
//
// A candidate creates a missing Lease with the holder no-leader-yet, and waits, as other candidates do, until it
// expires after one LeaseDuration: another client may have deleted the Lease while another process leads. To have a
// leader at once after the first installation, create a Lease with an empty spec together with the Deployment. No tool
// may create it again after it was deleted, because a Lease without a holder is acquired at once.
//
// # Compatibility
//
// The Lease has the contents that client-go's elector writes and expects, so processes with either elector can compete
// for it, for example during a rolling update.
package leader
