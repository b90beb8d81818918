package lock

import (
	"errors"
	"fmt"
)

// own is an option that one strategy has, and no other.
type own struct {
	strategy, name string
	value          any
}

// Own is for strategies: it makes an option that the strategy of that name has, and
// no other: their [Collect] refuses it with an error that wraps
// [errors.ErrUnsupported]. name is the option's, "advisory.Poll". The strategy reads
// the value with [Options.Own].
func Own(strategy, name string, value any) Option {
	return func(o *Options) error {
		o.own = append(o.own, own{strategy, name, value})
		return nil
	}
}

// Own is for strategies: it returns the value of the last option of that name, nil if
// there was none.
func (o *Options) Own(name string) any {
	for i := len(o.own) - 1; i >= 0; i-- {
		if o.own[i].name == name {
			return o.own[i].value
		}
	}
	return nil
}

// foreign says which option another strategy has.
func (o *Options) foreign(strategy string) error {
	for _, v := range o.own {
		if v.strategy != strategy {
			return fmt.Errorf("lock: %s cannot honour the option %s: %w", strategy, v.name, errors.ErrUnsupported)
		}
	}
	return nil
}
