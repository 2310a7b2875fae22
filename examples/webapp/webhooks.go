package main

import (
	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/crd"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/manager"
)

// serve adds the webhooks to the program, and what the versions of WebApp need.
func serve(p *evenkeel.Program, config hooks.Config, storeV2 bool) error {
	all, err := hooks.New(config)
	if err != nil {
		return err
	}
	definitions, err := crd.Parse(v2.CRD)
	if err != nil {
		return err
	}
	versions := definitions[0].Spec.Versions
	for i := range versions {
		versions[i].Storage = (versions[i].Name == v2.Version) == storeV2
	}
	p.Serve(append(all, hooks.Conversion())...)
	p.Install(definitions...) // keeps v2 as the storage version without --store-v2
	// Each replica serves webhooks, which read the cache, so it is full also before the replica leads.
	cache := manager.Runnable{Name: "webapps", Runner: config.WebApps, Group: manager.Caches}
	p.Manager.Runnables = append(p.Manager.Runnables, cache)
	return nil
}
