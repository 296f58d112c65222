/* Parameters of a CMSIS-NN function. */
struct cmsis_NAME {
  FIELDS
};
