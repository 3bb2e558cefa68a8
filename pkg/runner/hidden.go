package runner

// HiddenArguments are the first arguments of the commands that this package starts of
// the program it is a part of: one that is a [Spec.Wrapper], a [Watch.Program] or an
// [Options.Executable] calls [HiddenMain] before it looks at its arguments.
func HiddenArguments() []string {
	return []string{ChildArgument, WatchArgument, CheckoutArgument, CredentialArgument}
}

// HiddenMain executes a hidden command, if args begin with one, and returns the exit
// code for it.
func HiddenMain(args []string) (code int, hidden bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case ChildArgument:
		return ChildMain(args[1:]), true
	case WatchArgument:
		return WatchMain(), true
	case CheckoutArgument:
		return CheckoutMain(), true
	case CredentialArgument:
		return CredentialMain(args[1:]), true
	}
	return 0, false
}
