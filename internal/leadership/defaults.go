package leadership

import "time"

// Defaults of an election, which are those of Kubernetes' own components.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)
