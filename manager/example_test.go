package manager_test

import (
	"flag"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/evenkeel-go/evenkeel/manager"
)

func ExampleOptions_AddFlags() {
	options := manager.Options{Listen: ":8080"}
	flags := pflag.NewFlagSet("webapp", pflag.ContinueOnError)
	var goFlags flag.FlagSet
	options.AddFlags(&goFlags)
	flags.AddGoFlagSet(&goFlags)
	if err := flags.Parse([]string{"--log-level", "debug"}); err != nil {
		fmt.Println(err)
	}
	if err := options.Complete(&goFlags, flags.Changed); err != nil {
		fmt.Println(err)
	}
	fmt.Println(options.Listen, options.LogLevels)
	// Output: :8080 debug
}
