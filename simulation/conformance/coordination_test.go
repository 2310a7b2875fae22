package conformance

import "github.com/evenkeel-go/evenkeel/internal/apiserver"

// coordinationKinds returns the kinds of coordination.k8s.io.
func coordinationKinds() []*kind {
	return []*kind{{
		resource: "leases", name: "Lease", apiVersion: "coordination.k8s.io/v1", memory: builtin(apiserver.Leases), createOnUpdate: true,
		fields: []field{{name: "spec", value: func(g *generator) string {
			return pick(g, `{"holderIdentity":"`+g.value()+`","leaseDurationSeconds":15}`, `{"holderIdentity":"`+g.value()+`"}`,
				`{"leaseTransitions":3}`, `{"strategy":"OldestEmulationVersion"}`, `{"leaseDurationSeconds":0}`, `{"leaseTransitions":-1}`,
				`{"renewTime":"2020-01-01T00:00:00.000000Z"}`, `{}`)
		}}},
	}}
}
