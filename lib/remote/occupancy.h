/* The words of records about how large blocks had best be. */
#ifndef DIVVY_REMOTE_OCCUPANCY_H
#define DIVVY_REMOTE_OCCUPANCY_H

enum occupancy_word {
    OCCUPANCY_FUNCTION,
    OCCUPANCY_SHARED,
    OCCUPANCY_LIMIT,
    OCCUPANCY_FLAGS,
    OCCUPANCY_WORDS
};

#endif
