package main

import (
	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
)

// webhooks are what --webhook-listen adds to the program: rules for WebApps, and their version v2.
type webhooks struct {
	rules   hooks.Rules
	storeV2 bool
}

func (w *webhooks) addFlags(p *evenkeel.Program) {
	p.Flags.StringVar(&w.rules.Domain, "domain", "", "domain that a webhook appends to hosts without a dot "+
		"(default: none)")
	p.Flags.BoolVar(&w.storeV2, "store-v2", false, "store WebApps in v2; before, all replicas must have webhooks")
}

// addTo adds the webhooks to the program and to the config of its operator.
func (w *webhooks) addTo(p *evenkeel.Program, config *evenkeel.Config[*v1.WebApp], owners hooks.Owners) error {
	if p.Webhooks.Listen == "" {
		return nil
	}
	definitions, err := crd.Parse(v2.CRD)
	if err != nil {
		return err
	}
	versions := definitions[0].Spec.Versions
	for i := range versions {
		versions[i].Storage = (versions[i].Name == v2.Version) == w.storeV2
	}
	p.Install(definitions) // keeps v2 as the storage version without --store-v2
	p.Serve(hooks.Conversion())
	w.rules.Owners = owners
	config.Default, config.Validate = w.rules.SetDomain, w.rules.CheckHost
	return nil
}
