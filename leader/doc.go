// Package leader lets one process out of several work at a time, by an election on a
// Lease of the API server.
//
// An Elector is what a controller's LeaderElector field takes. It can also stand around
// a group of controllers, or around anything else: Run takes a function.
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
// check of Status.Until and a write, and a write on its way to the API server may use up.
//
// The measuring is done with the operating system's monotonic clock. Setting the time of
// day does not disturb it, and a process that is stopped and continued finds that its
// time has passed. On Linux that clock stands still while the whole machine is suspended:
// after that, a process believes to lead until its next renewal is refused. Do not suspend
// machines that run a leader.
package leader
